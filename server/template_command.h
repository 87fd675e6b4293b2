// `spillway template FILE.jinja CONTEXT.json`: prints what a chat template makes of a context.
#pragma once

#include <iosfwd>
#include <string>

namespace spillway::server {

struct TemplateOptions {
  std::string template_path;  // "" renders the default of models without one
  std::string
      context_path;  // a JSON object: messages, tools, add_generation_prompt, bos_token, ...
};

// Writes the rendering to `out` exactly as it is. Returns the exit code: 0, or 1 after one line on
// `err`.
int template_command(const TemplateOptions& options, std::ostream& out, std::ostream& err);

}  // namespace spillway::server
