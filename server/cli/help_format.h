// How --help looks: a name with its value's noun, what it does, the default, lines of 100 columns.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace spillway::server {

class HelpFormat final : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
  // Those that are positional only: the others stand among the options.
  std::string make_positionals(const CLI::App* app) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
};

}  // namespace spillway::server
