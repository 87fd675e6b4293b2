#include "server/api/tokenize.h"

#include <boost/json.hpp>

#include "server/api/chat_prompt.h"
#include "server/api/fields.h"
#include "server/api/generation.h"
#include "server/api/json_reader.h"
#include "server/api/json_text.h"

namespace spillway::server {
namespace {

constexpr size_t kTokensMax = 1 << 22;

ApiResult<std::vector<model::TokenId>> tokens_of(const ServedModel& model, Fields& fields,
                                                 const json::object& body) {
  if (fields.has("messages")) {
    auto prompt = read_chat_prompt(body, model);
    if (!prompt) return prompt.error();
    return encode_chat(model, std::move(*prompt));
  }
  const bool is_prompt = fields.has("prompt");
  const auto text = fields.text(is_prompt ? "prompt" : "content", size_t(-1));
  // llama.cpp's clients call it "add_special" and expect none unless asked for.
  model::EncodeOptions options{.add_special = is_prompt, .parse_special = true};
  fields.flag("add_special", options.add_special);
  fields.flag("add_special_tokens", options.add_special);
  fields.flag("parse_special", options.parse_special);
  if (!fields.ok()) return fields.error();
  if (!text) return bad_field("prompt", "'prompt', 'content' or 'messages' is needed");
  return model.tokenizer->encode(*text, options);
}

}  // namespace

ApiResult<std::string> tokenize(const ServedModel& model, std::string_view body) {
  auto object = read_json_object(body);
  if (!object) return object.error();
  Fields fields(*object);
  std::string name;
  check_model_name(fields, model, name);
  const bool strings = fields.boolean("return_token_strs").value_or(false) ||
                       fields.boolean("with_pieces").value_or(false);
  if (!fields.ok()) return fields.error();
  auto tokens = tokens_of(model, fields, *object);
  if (!tokens) return tokens.error();
  json::object out{{"count", tokens->size()},
                   {"max_model_len", model.context_tokens_max},
                   {"tokens", json::value_from(*tokens)}};
  if (strings) {
    json::array pieces;
    for (const auto token : *tokens)
      pieces.push_back(json::string(model.tokenizer->piece(token, true)));
    out["token_strs"] = std::move(pieces);
  }
  return to_json(out);
}

ApiResult<std::string> detokenize(const ServedModel& model, std::string_view body) {
  auto object = read_json_object(body);
  if (!object) return object.error();
  Fields fields(*object);
  std::string name;
  check_model_name(fields, model, name);
  if (fields.ok() && fields.array("tokens") == nullptr) fields.fail("tokens", "is missing");
  const auto tokens = fields.tokens("tokens", kTokensMax, model.tokenizer->vocabulary());
  if (!fields.ok()) return fields.error();
  const json::string text(model.tokenizer->decode(tokens, true));
  return to_json(json::object{{"prompt", text}, {"content", text}});
}

}  // namespace spillway::server
