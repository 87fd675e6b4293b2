#include "server/template_command.h"

#include <fstream>
#include <iterator>
#include <ostream>

#include "model/chat_template.h"
#include "server/json_to_jinja.h"

namespace spillway::server {
namespace {

Result<std::string> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) return Error{ErrorCode::kIo, "cannot read " + path};
  return text;
}

Result<std::string> render(const TemplateOptions& options) {
  std::string source(model::ChatTemplate::fallback_source());
  if (!options.template_path.empty()) {
    auto file = read_file(options.template_path);
    if (!file) return file.error();
    source = std::move(*file);
  }
  const auto text = read_file(options.context_path);
  if (!text) return text.error();
  const auto context = json_to_jinja(*text);
  if (!context) {
    return invalid_argument(options.context_path + ": " + context.error().message);
  }
  const auto parsed = model::ChatTemplate::parse(source);
  if (!parsed) return parsed.error();
  return parsed->render(*context);
}

}  // namespace

int template_command(const TemplateOptions& options, std::ostream& out, std::ostream& err) {
  const Result<std::string> text = render(options);
  if (!text) {
    err << "spillway template: " << text.error().message << "\n";
    return 1;
  }
  out << *text;
  return 0;
}

}  // namespace spillway::server
