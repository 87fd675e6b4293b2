#include "scheduler/thrash_control.h"

#include <algorithm>
#include <chrono>

namespace spillway::scheduler {

void ThrashControl::stepped(Clock::TimePoint now, const Step& step) {
  if (window_began_ == Clock::TimePoint{}) window_began_ = now;
  window_tokens_ += step.tokens;
  const uint32_t each = std::max(kWindowTokens, step.slice_tokens);
  if (window_tokens_ < uint64_t{each} * std::max(step.running, 1u)) return;
  decide(std::chrono::duration<double>(now - window_began_).count(), step);
  window_began_ = now;
  window_bytes_ = 0;
  window_tokens_ = 0;
}

void ThrashControl::decide(double seconds, const Step& step) {
  const auto tokens = static_cast<double>(window_tokens_);
  bytes_per_token_ = static_cast<double>(window_bytes_) / tokens;
  if (step.bytes_per_s <= 0 || seconds <= 0) return;
  // The tier's time for a token's share of the bytes, against the time of the token.
  const double share = bytes_per_token_ / step.bytes_per_s / (seconds / tokens);
  const uint32_t now_taking = std::min(streams_max_, step.streams);
  if (share > kTooMuch) {
    ++shrinks_;
    streams_max_ = std::max({step.running, now_taking - (now_taking + 3) / 4, 1u});
  } else if (share < kLittle && streams_max_ != kNoLimit) {
    streams_max_ = now_taking < step.streams ? now_taking + 1 : kNoLimit;
  }
}

}  // namespace spillway::scheduler
