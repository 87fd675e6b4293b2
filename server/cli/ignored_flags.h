// vLLM's flags that mean nothing here: taken, so that a command line for vLLM starts this server
// too, and each said to have no effect.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace spillway::server {

// Each flag that is given appends a line for a person to `notes`, which must outlive the parse.
void add_ignored_flags(CLI::App& app, std::vector<std::string>& notes);

}  // namespace spillway::server
