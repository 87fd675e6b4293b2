#include "scheduler/outcome.h"

#include <algorithm>

#include "runtime/check.h"

namespace spillway::scheduler {
namespace {

bool contains(const std::vector<model::TokenId>& tokens, model::TokenId token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

double seconds(Clock::Duration time) { return std::chrono::duration<double>(time).count(); }

// The prompt's log-probabilities go out once, before any token of choice 0.
void attach_prompt_scores(LiveRequest& request, Output& output) {
  if (!request.request.prompt_logprobs || output.choice != 0) return;
  output.prompt_tokens = std::exchange(request.prompt_scores, {});
}

}  // namespace

void Outbox::deliver() {
  for (auto& [sink, output] : outputs_) sink->on_output(std::move(output));
  outputs_.clear();
}

std::unique_ptr<model::TextStream> make_text_stream(const model::Tokenizer& tokenizer,
                                                    const Request& request) {
  return std::make_unique<model::TextStream>(
      tokenizer, request.stop.stop_strings, request.stop.include_stop_string, request.show_control);
}

std::vector<model::TokenId> banned_tokens(const model::Tokenizer& tokenizer,
                                          const Request& request) {
  if (request.stop.min_tokens == 0) return {};
  std::vector<model::TokenId> banned = request.stop.stop_tokens;
  if (!request.stop.ignore_eos) {
    banned.insert(banned.end(), tokenizer.end_tokens().begin(), tokenizer.end_tokens().end());
  }
  return banned;
}

std::optional<FinishReason> take_token(const model::Tokenizer& tokenizer, LiveSequence& sequence,
                                       const model::SampleResult& sample,
                                       uint32_t context_tokens_max, Outbox& outbox) {
  LiveRequest& request = *sequence.request;
  const StopRules& stop = request.request.stop;
  CHECK(sample.token >= 0);
  sequence.tokens.push_back(sample.token);
  ++sequence.progress;
  ++request.usage.completion_tokens;
  const uint32_t outputs = request.outputs(sequence);

  Output output;
  output.request = request.id;
  output.choice = sequence.choice;
  output.tokens.push_back({sample.token, sample.logprob, sample.top});
  attach_prompt_scores(request, output);

  if ((!stop.ignore_eos && tokenizer.ends_generation(sample.token)) ||
      contains(stop.stop_tokens, sample.token)) {
    output.finish = FinishReason::kStop;
  } else {
    const bool may_stop = outputs >= stop.min_tokens;
    model::TextStream::Piece piece = sequence.text->push(sample.token, may_stop);
    output.text = std::move(piece.text);
    if (piece.stop) {
      output.finish = FinishReason::kStop;
      output.stop_string = stop.stop_strings[*piece.stop];
    } else if (outputs >= stop.max_tokens || sequence.tokens.size() >= context_tokens_max) {
      output.finish = FinishReason::kLength;
    }
  }
  if (output.finish && !output.stop_string) output.text += sequence.text->flush();
  if (!request.answered) {
    request.answered = true;
    output.usage = request.usage;
  }
  const auto finish = output.finish;
  outbox.add(request, std::move(output));
  return finish;
}

void finish_without_token(LiveSequence& sequence, FinishReason reason, const std::string& error,
                          Outbox& outbox) {
  Output output;
  output.request = sequence.request->id;
  output.choice = sequence.choice;
  output.text = sequence.text->flush();
  output.finish = reason;
  output.error = error;
  attach_prompt_scores(*sequence.request, output);
  outbox.add(*sequence.request, std::move(output));
}

void finish_request(LiveRequest& request, Clock::TimePoint now, Outbox& outbox) {
  Output output;
  output.request = request.id;
  output.done = true;
  if (request.admitted) {
    const auto decode_from = request.answered ? request.first_token : now;
    request.usage.queue_seconds = seconds(request.started - request.arrived);
    request.usage.prefill_seconds = seconds(decode_from - request.started);
    request.usage.decode_seconds = seconds(now - decode_from);
  } else {
    request.usage.queue_seconds = seconds(now - request.arrived);
  }
  output.usage = request.usage;
  output.pin = request.pin;
  outbox.add(request, std::move(output));
}

}  // namespace spillway::scheduler
