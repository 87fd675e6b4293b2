#include "model/text_stream.h"

#include <string_view>

#include "model/utf8.h"
#include "runtime/check.h"

namespace spillway::model {

TextStream::TextStream(const Tokenizer& tokenizer, const std::vector<std::string>& stop_strings,
                       TextStreamOptions options)
    : tokenizer_(&tokenizer),
      matcher_(stop_strings),
      options_(options),
      drop_space_(options.at_text_start && tokenizer.drops_leading_space()) {
  for (const std::string& stop : stop_strings) stop_bytes_.push_back(stop.size());
}

TextStream::Piece TextStream::push(TokenId token, bool may_stop) {
  CHECK(!ended_);
  std::string_view bytes = tokenizer_->piece(token, options_.show_control);
  if (drop_space_ && !bytes.empty()) {
    drop_space_ = false;
    if (bytes.front() == ' ') bytes.remove_prefix(1);
  }
  for (const char byte : bytes) {
    held_.push_back(byte);
    state_ = matcher_.step(state_, byte);
    if (const std::optional<size_t> stop = matcher_.match(state_)) {
      if (!may_stop) {
        state_ = StopMatcher::kStart;
        continue;
      }
      ended_ = true;
      const size_t dropped = options_.include_stop_string ? 0 : stop_bytes_[*stop];
      Piece piece{release(held_.size() - dropped, true), stop};
      held_.clear();
      return piece;
    }
  }
  return {release(held_.size() - matcher_.pending_bytes(state_), false), std::nullopt};
}

std::string TextStream::flush() {
  ended_ = true;
  return release(held_.size(), true);
}

// Takes up to `bytes` of what is held, as whole code points.
std::string TextStream::release(size_t bytes, bool at_end) {
  std::string out;
  const size_t taken = append_valid_utf8(out, std::string_view(held_).substr(0, bytes), at_end);
  held_.erase(0, taken);
  return out;
}

}  // namespace spillway::model
