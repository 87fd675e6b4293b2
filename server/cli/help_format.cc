#include "server/cli/help_format.h"

#include <sstream>
#include <vector>

namespace spillway::server {
namespace {

constexpr size_t kColumns = 100;

bool has_flag(const CLI::Option& option) {
  return !option.get_snames().empty() || !option.get_lnames().empty();
}

std::string names_of(const CLI::Option& option, bool is_positional) {
  if (is_positional || !has_flag(option)) return option.get_name(true);
  std::string out;
  const auto add = [&out](const char* dashes, const std::vector<std::string>& names) {
    for (const std::string& name : names) out += (out.empty() ? "" : ", ") + (dashes + name);
  };
  add("-", option.get_snames());
  add("--", option.get_lnames());
  return out;
}

// The value's noun, without the checks that the library writes behind it.
std::string value_of(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";
  std::string noun = option.get_type_name();
  noun = noun.substr(0, noun.find(':'));
  if (noun == "UINT" || noun == "INT") noun = "N";
  if (noun == "FLOAT") noun = "X";
  const bool many = option.get_expected_max() == CLI::detail::expected_max_vector_size;
  if (many && option.get_allow_extra_args()) noun += " ...";
  return noun;
}

std::string description_of(const CLI::Option& option) {
  std::string out = option.get_description();
  if (!option.get_default_str().empty()) out += " (default: " + option.get_default_str() + ")";
  if (option.get_required()) out += " (required)";
  return out;
}

}  // namespace

std::string HelpFormat::make_help(const CLI::App* app, std::string name,
                                  CLI::AppFormatMode mode) const {
  std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
  for (size_t at = 0; (at = text.find("\n\n\n", at)) != text.npos;) text.erase(at, 1);
  return text;
}

std::string HelpFormat::make_positionals(const CLI::App* app) const {
  const auto options = app->get_options([](const CLI::Option* option) {
    return !option->get_group().empty() && option->get_positional() && !has_flag(*option);
  });
  return options.empty() ? std::string() : make_group(get_label("Positionals"), true, options);
}

std::string HelpFormat::make_option(const CLI::Option* option, bool is_positional) const {
  std::string out = "  " + names_of(*option, is_positional);
  if (!is_positional) {
    if (const std::string value = value_of(*option); !value.empty()) out += " " + value;
  }
  const std::string indent(get_column_width(), ' ');
  // A long name has its line for itself.
  std::string line = out.size() < indent.size() ? out + indent.substr(out.size()) : indent;
  out = out.size() < indent.size() ? "" : out + "\n";
  std::istringstream words(description_of(*option));
  bool first = true;
  for (std::string word; words >> word; first = false) {
    if (!first && line.size() + 1 + word.size() > kColumns) {
      out += line + "\n";
      line = indent;
      first = true;
    }
    line += (first ? "" : " ") + word;
  }
  return out + line + "\n";
}

}  // namespace spillway::server
