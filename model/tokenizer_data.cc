#include "model/tokenizer_data.h"

#include "model/gguf.h"

namespace spillway::model {
namespace {

constexpr uint32_t kNone = UINT32_MAX;  // some converters write it for "no such token"

std::string key(const char* name) { return std::string("tokenizer.ggml.") + name; }

Error bad(const std::string& what) { return {ErrorCode::kCorrupt, what}; }

Result<TokenId> read_id(const GgufFile& file, const char* name, TokenId fallback) {
  if (!file.has(key(name))) return fallback;
  const Result<uint32_t> id = file.get_u32(key(name));
  if (!id) return id.error();
  if (*id == kNone) return TokenId{-1};
  if (*id > INT32_MAX) return bad(key(name) + " is " + std::to_string(*id) + ", no token id");
  return static_cast<TokenId>(*id);
}

Result<std::optional<bool>> read_flag(const GgufFile& file, const char* name) {
  if (!file.has(key(name))) return std::optional<bool>();
  const Result<bool> flag = file.get_bool(key(name));
  if (!flag) return flag.error();
  return std::optional<bool>(*flag);
}

Result<void> read_types(const GgufFile& file, TokenizerData& data) {
  if (!file.has(key("token_type"))) return {};
  const auto types = file.get_ints(key("token_type"));
  if (!types) return types.error();
  data.types.reserve(types->size());
  for (const int64_t type : *types) {
    const bool known = type >= static_cast<int64_t>(TokenType::kNormal) &&
                       type <= static_cast<int64_t>(TokenType::kByte);
    data.types.push_back(known ? static_cast<TokenType>(type) : TokenType::kUnused);
  }
  return {};
}

Result<void> read_scores(const GgufFile& file, TokenizerData& data) {
  if (!file.has(key("scores"))) return {};
  auto scores = file.get_floats(key("scores"));
  if (!scores) return scores.error();
  data.scores = std::move(*scores);
  return {};
}

Result<void> read_ids(const GgufFile& file, TokenizerData& data) {
  // SPM files may leave these out where they are what SentencePiece gives by default.
  const bool spm = data.model == "llama";
  struct Field {
    const char* name;
    TokenId fallback;
    TokenId* id;
  };
  const Field fields[] = {{"bos_token_id", spm ? 1 : -1, &data.bos},
                          {"eos_token_id", spm ? 2 : -1, &data.eos},
                          {"unknown_token_id", spm ? 0 : -1, &data.unknown},
                          {"eot_token_id", -1, &data.eot},
                          {"eom_token_id", -1, &data.eom}};
  for (const Field& field : fields) {
    const Result<TokenId> id = read_id(file, field.name, field.fallback);
    if (!id) return id.error();
    *field.id = *id;
  }
  return {};
}

Result<void> read_flags(const GgufFile& file, TokenizerData& data) {
  struct Field {
    const char* name;
    std::optional<bool>* flag;
  };
  const Field fields[] = {{"add_bos_token", &data.adds_bos},
                          {"add_eos_token", &data.adds_eos},
                          {"add_space_prefix", &data.adds_space_prefix},
                          {"remove_extra_whitespaces", &data.removes_extra_whitespace}};
  for (const Field& field : fields) {
    const auto flag = read_flag(file, field.name);
    if (!flag) return flag.error();
    *field.flag = *flag;
  }
  return {};
}

Result<std::string> read_text(const GgufFile& file, const std::string& name) {
  const auto text = file.get_string_or(name, "");
  if (!text) return text.error();
  return std::string(*text);
}

}  // namespace

Result<TokenizerData> read_tokenizer_data(const GgufFile& file) {
  TokenizerData data;
  const auto model = file.get_string(key("model"));
  if (!model) return model.error();
  data.model = std::string(*model);
  auto pretokenizer = read_text(file, key("pre"));
  if (!pretokenizer) return pretokenizer.error();
  data.pretokenizer = std::move(*pretokenizer);
  auto name = read_text(file, "general.name");
  if (!name) return name.error();
  data.model_name = std::move(*name);

  auto tokens = file.get_strings(key("tokens"));
  if (!tokens) return tokens.error();
  data.tokens = std::move(*tokens);
  if (file.has(key("merges"))) {
    auto merges = file.get_strings(key("merges"));
    if (!merges) return merges.error();
    data.merges = std::move(*merges);
  }
  for (const auto read : {read_types, read_scores, read_ids, read_flags}) {
    if (const Result<void> done = read(file, data); !done) return done.error();
  }
  if (const Result<void> checked = check_tokenizer_data(data); !checked) return checked.error();
  return data;
}

Result<void> check_tokenizer_data(const TokenizerData& data) {
  const size_t count = data.tokens.size();
  if (count == 0 || count > INT32_MAX) {
    return bad(key("tokens") + " has " + std::to_string(count) + " entries");
  }
  uint64_t bytes = 0;
  for (const std::string_view token : data.tokens) bytes += token.size();
  if (bytes > UINT32_MAX) {
    return bad(key("tokens") + " holds " + std::to_string(bytes) + " bytes, over 4 GiB");
  }
  const std::pair<const char*, size_t> arrays[] = {{"token_type", data.types.size()},
                                                   {"scores", data.scores.size()}};
  for (const auto& [name, size] : arrays) {
    if (size != 0 && size != count) {
      return bad(key(name) + " has " + std::to_string(size) + " entries, but there are " +
                 std::to_string(count) + " tokens");
    }
  }
  const std::pair<const char*, TokenId> ids[] = {{"bos_token_id", data.bos},
                                                 {"eos_token_id", data.eos},
                                                 {"eot_token_id", data.eot},
                                                 {"eom_token_id", data.eom},
                                                 {"unknown_token_id", data.unknown}};
  for (const auto& [name, id] : ids) {
    if (id < -1 || id >= static_cast<TokenId>(count)) {
      return bad(key(name) + " is " + std::to_string(id) + ", past the vocabulary of " +
                 std::to_string(count) + " tokens");
    }
  }
  return {};
}

}  // namespace spillway::model
