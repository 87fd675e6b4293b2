#include <cstdio>
#include <iostream>
#include <iterator>

#include "model/gguf.h"
#include "model/tokenizer.h"
#include "server/api/json_text.h"
#include "server/api/logprobs.h"
#include "server/cli/commands.h"
#include "server/cli/load_model.h"

namespace spillway::server {

int tokenize_command(const TokenizeOptions& options) {
  const auto fail = [](const Error& error) {
    std::fprintf(stderr, "spillway: %s\n", error.message.c_str());
    return 1;
  };
  const auto file = model::GgufFile::open(model_path_or_default(options.path));
  if (!file) return fail(file.error());
  const auto tokenizer = model::Tokenizer::create(*file);
  if (!tokenizer) return fail(tokenizer.error());
  std::string text = options.text;
  if (options.from_stdin) {
    text.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  const auto tokens = (*tokenizer)
                          ->encode(text, {.add_special = !options.no_special,
                                          .parse_special = options.parse_special});
  std::string out;
  for (const model::TokenId token : tokens) {
    if (options.ids_only) {
      out += (out.empty() ? "[" : ", ") + std::to_string(token);
      continue;
    }
    out += std::to_string(token) + "\t";
    append_quoted(out, token_label(**tokenizer, token));
    out += "\n";
  }
  if (options.ids_only) out += out.empty() ? "[]\n" : "]\n";
  std::fputs(out.c_str(), stdout);
  return 0;
}

}  // namespace spillway::server
