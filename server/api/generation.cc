#include "server/api/generation.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <chrono>
#include <limits>

#include "server/api/random_id.h"

namespace spillway::server {
namespace {

constexpr TextLimits kStopLimits = {.count = 16, .bytes = 1024};
constexpr size_t kStopTokensMax = 1024;
constexpr size_t kBiasMax = 1024;
constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

// Fields that would change the answer if they were honoured: ignoring them would mislead.
constexpr std::array<std::string_view, 14> kRefused = {"structured_outputs",
                                                       "guided_json",
                                                       "guided_regex",
                                                       "guided_choice",
                                                       "guided_grammar",
                                                       "grammar",
                                                       "json_schema",
                                                       "allowed_token_ids",
                                                       "bad_words",
                                                       "prompt_logprobs",
                                                       "logprob_token_ids",
                                                       "functions",
                                                       "audio",
                                                       "truncate_prompt_tokens"};

void refuse_unsupported(Fields& fields) {
  for (const std::string_view name : kRefused) {
    if (fields.has(name)) fields.fail(name, "is not supported", "unsupported");
  }
  if (fields.boolean("use_beam_search").value_or(false)) {
    fields.fail("use_beam_search", "is not supported", "unsupported");
  }
  if (const json::object* format = fields.object("response_format")) {
    const json::value* type = format->if_contains("type");
    if (type == nullptr || !type->is_string() || type->get_string() != "text") {
      fields.fail("response_format",
                  "can only be {\"type\": \"text\"}: structured output is not "
                  "supported yet",
                  "unsupported");
    }
  }
  if (const json::array* modalities = fields.array("modalities")) {
    for (const json::value& item : *modalities) {
      if (!item.is_string() || item.get_string() != "text") {
        fields.fail("modalities", "can only hold 'text'", "unsupported");
      }
    }
  }
}

void read_bias(Fields& fields, uint32_t vocabulary, model::SamplingParams& sampling) {
  const json::object* bias = fields.object("logit_bias");
  if (bias == nullptr) return;
  if (bias->size() > kBiasMax) {
    return fields.fail("logit_bias", "may name at most " + std::to_string(kBiasMax) + " tokens");
  }
  for (const auto& member : *bias) {
    const std::string key(member.key().data(), member.key().size());
    const bool digits =
        !key.empty() && key.size() < 10 &&
        std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits || std::stoul(key) >= vocabulary) {
      return fields.fail("logit_bias", "names '" + key.substr(0, 32) +
                                           "', which is no token id from 0 to " +
                                           std::to_string(vocabulary - 1));
    }
    const double value = member.value().is_number() ? member.value().to_number<double>() : 1e9;
    if (!(value >= -100 && value <= 100)) {
      return fields.fail("logit_bias",
                         "may hold numbers from -100 to 100 only (token " + key + ")");
    }
    sampling.logit_bias.emplace_back(static_cast<model::TokenId>(std::stoul(key)),
                                     static_cast<float>(value));
  }
  std::sort(sampling.logit_bias.begin(), sampling.logit_bias.end());
}

void read_sampling(Fields& fields, const ServedModel& model, Generation& out) {
  model::SamplingParams& sampling = out.sampling;
  fields.number("temperature", {0, 2}, sampling.temperature);
  fields.number("top_p", {0, 1}, sampling.top_p);
  fields.number("min_p", {0, 1}, sampling.min_p);
  fields.number("typical_p", {0, 1, true}, sampling.typical_p);
  fields.number("repetition_penalty", {0, 100, true}, sampling.repetition_penalty);
  fields.number("frequency_penalty", {-2, 2}, sampling.frequency_penalty);
  fields.number("presence_penalty", {-2, 2}, sampling.presence_penalty);
  sampling.top_k = static_cast<int32_t>(fields.integer("top_k", {-1, kInt32Max}).value_or(0));
  const auto seed = fields.integer(
      "seed", {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()});
  out.seeded = seed.has_value();
  sampling.seed = seed ? static_cast<uint64_t>(*seed) : model.seed ? *model.seed : random_u64();
  read_bias(fields, model.tokenizer->vocabulary(), sampling);
}

void read_lengths(Fields& fields, Generation& out) {
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    if (const auto count = fields.integer(name, {0, kInt32Max})) {
      out.max_tokens = static_cast<uint32_t>(*count);
    }
  }
  const auto min_tokens = fields.integer("min_tokens", {0, kInt32Max}).value_or(0);
  out.stop.min_tokens = static_cast<uint32_t>(min_tokens);
  if (out.max_tokens && out.stop.min_tokens > *out.max_tokens) {
    fields.fail("min_tokens", "must not be more than max_tokens");
  }
}

void read_stops(Fields& fields, const ServedModel& model, Generation& out) {
  out.stop.stop_strings = fields.texts("stop", kStopLimits);
  out.stop.stop_tokens =
      fields.tokens("stop_token_ids", kStopTokensMax, model.tokenizer->vocabulary());
  fields.flag("ignore_eos", out.stop.ignore_eos);
  fields.flag("include_stop_str_in_output", out.stop.include_stop_string);
  out.show_control = !fields.boolean("skip_special_tokens").value_or(true);
}

void read_stream(Fields& fields, Generation& out) {
  fields.flag("stream", out.stream);
  const json::object* options = fields.object("stream_options");
  if (options == nullptr) return;
  if (!out.stream) return fields.fail("stream_options", "is only allowed with 'stream': true");
  Fields inner(*options, "stream_options.");
  inner.flag("include_usage", out.include_usage);
  if (!inner.ok()) fields.fail(inner.error());
}

}  // namespace

void check_model_name(Fields& fields, const ServedModel& model, std::string& name) {
  name = model.names.front();
  const auto asked = fields.text("model", 4096);
  if (!asked || asked->empty()) return;
  if (!model.answers_to(*asked)) {
    fields.fail({.status = 404,
                 .type = "not_found_error",
                 .message = "the model '" + asked->substr(0, 256) +
                            "' does not exist; this server has '" + model.names.front() + "'",
                 .param = "model",
                 .code = "model_not_found"});
    return;
  }
  name = *asked;
}

Generation read_generation(Fields& fields, const ServedModel& model) {
  Generation out;
  check_model_name(fields, model, out.model_name);
  refuse_unsupported(fields);
  read_sampling(fields, model, out);
  read_lengths(fields, out);
  read_stops(fields, model, out);
  read_stream(fields, out);
  out.choices = static_cast<uint32_t>(
      fields.integer("n", {1, static_cast<int64_t>(model.choices_max)}).value_or(1));
  const auto best_of = fields.integer("best_of", {1, 1 << 20});
  if (best_of && *best_of != out.choices) {
    fields.fail("best_of", "is not supported: leave it out or set it to 'n'", "unsupported");
  }
  out.priority =
      static_cast<int32_t>(fields.integer("priority", {-kInt32Max, kInt32Max}).value_or(0));
  if (auto salt = fields.text("cache_salt", 1024)) {
    if (salt->empty()) fields.fail("cache_salt", "must have 1 to 1024 bytes");
    out.cache_salt = std::move(*salt);
  }
  out.cache = read_cache_options(fields);
  fields.flag("return_token_ids", out.return_token_ids);
  out.deadline_seconds = fields.number("timeout", {0, 1e6, true});
  return out;
}

ApiResult<scheduler::Request> make_request(const Generation& generation, const ServedModel& model,
                                           std::vector<model::TokenId> prompt,
                                           std::optional<uint32_t> default_tokens,
                                           const std::string& prompt_field) {
  const uint64_t context = model.context_tokens_max;
  const auto too_long = [&](const std::string& what) {
    return bad_field(prompt_field,
                     "this model's maximum context length is " + std::to_string(context) +
                         " tokens, but " + what + "; shorten the prompt or ask for less",
                     "context_length_exceeded");
  };
  const uint64_t length = prompt.size();
  const uint64_t asked = generation.max_tokens.value_or(0);
  if (length > context || (length == context && (!generation.max_tokens || asked > 0))) {
    return too_long("the prompt has " + std::to_string(length) + " tokens");
  }
  if (length + asked > context) {
    return too_long("you asked for " + std::to_string(length + asked) + " (" +
                    std::to_string(length) + " in the prompt, " + std::to_string(asked) +
                    " for the answer)");
  }
  const uint64_t rest = context - length;
  scheduler::Request request;
  request.stop = generation.stop;
  request.stop.max_tokens = static_cast<uint32_t>(
      generation.max_tokens ? asked
                            : std::min<uint64_t>(rest, default_tokens.value_or(UINT32_MAX)));
  request.prompt = std::move(prompt);
  request.sampling = generation.sampling;
  request.choices = generation.choices;
  request.show_control = generation.show_control;
  request.priority = generation.priority;
  request.cache_salt = generation.cache_salt;
  request.explicit_breakpoints = generation.cache.explicit_only;
  // Whoever names a lifetime means the prompt's end too.
  if (generation.cache.ttl_given && !generation.cache.explicit_only) {
    request.breakpoints.push_back(
        {static_cast<uint32_t>(request.prompt.size()), generation.cache.ttl});
  }
  if (generation.deadline_seconds) {
    request.deadline = std::chrono::steady_clock::now() +
                       std::chrono::milliseconds(int64_t(*generation.deadline_seconds * 1000));
  }
  return request;
}

std::string_view finish_name(scheduler::FinishReason reason) {
  switch (reason) {
    case scheduler::FinishReason::kStop:
      return "stop";
    case scheduler::FinishReason::kLength:
      return "length";
    case scheduler::FinishReason::kCancelled:
    case scheduler::FinishReason::kDeadline:
    case scheduler::FinishReason::kError:
      break;
  }
  return "error";
}

}  // namespace spillway::server
