#include "cache/tier_rates.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include "runtime/check.h"

namespace spillway::cache {
namespace {

double seconds(Clock::Duration time) { return std::chrono::duration<double>(time).count(); }

constexpr uint64_t kManyBytes = 16u << 20;  // make a sample however short their time
constexpr Clock::Duration kFirstPause = std::chrono::seconds(2);
constexpr Clock::Duration kLongestPause = std::chrono::seconds(60);

}  // namespace

void TransferRate::advance(Clock::TimePoint now) {
  if (in_flight_ > 0) busy_s_ += seconds(now - marked_);
  marked_ = now;
}

void TransferRate::began(Clock::TimePoint now, uint64_t bytes) {
  advance(now);
  if (in_flight_ == 0) {
    progress_ = now;
    ramp_ = ramp_ || done_bytes_ == 0;
  }
  in_flight_ += bytes;
  if (ramp_) wanted_bytes_ = std::max(wanted_bytes_, in_flight_);
}

void TransferRate::ended(Clock::TimePoint now, uint64_t bytes, bool whole) {
  if (now - progress_ > kTogether || now - bunch_ > kLongBunch) {
    take_sample();
    bunch_ = now;
  }
  if (!ramp_ || done_bytes_ > 0) silence_s_ = std::max(silence_s_, seconds(now - progress_));
  advance(now);
  CHECK(in_flight_ >= bytes);
  in_flight_ -= bytes;
  progress_ = now;
  progress_busy_s_ = busy_s_;
  if (whole) done_bytes_ += bytes;
  if (in_flight_ == 0) take_sample();  // nothing more comes at this moment
}

// Of what has ended so far, and of the time up to the last end.
void TransferRate::take_sample() {
  const bool many = progress_busy_s_ >= kSampleSeconds || done_bytes_ >= kManyBytes;
  const bool enough = done_bytes_ >= wanted_bytes_ && many;
  if (!enough && progress_busy_s_ < kLongestSeconds) return;
  if (progress_busy_s_ < kSilences * std::max(silence_s_, last_silence_s_)) return;
  const double sample = static_cast<double>(done_bytes_) / progress_busy_s_;
  busy_s_ -= progress_busy_s_;
  progress_busy_s_ = 0;
  if (done_bytes_ == 0 && !measured_) return;  // a failure tells nothing of a speed never seen
  const double weight = weight_of(sample);
  rate_ = std::max((1 - weight) * rate_ + weight * sample, 1.0);
  measured_ = true;
  done_bytes_ = 0;
  wanted_bytes_ = kSampleBytes;
  ramp_ = false;
  last_silence_s_ = std::exchange(silence_s_, 0);
}

double TransferRate::weight_of(double sample) {
  if (!measured_) return 1;
  const int moved = sample > kMoved * rate_ ? 1 : sample < rate_ / kMoved ? -1 : 0;
  const bool again = moved != 0 && std::exchange(moved_, moved) == moved;
  if (moved == 0) moved_ = 0;
  return again ? kMovedNewest : kNewest;
}

double TransferRate::bytes_per_s(Clock::TimePoint now) const {
  if (in_flight_ == 0) {
    if (!measured_ || rate_ >= guess_) return rate_;
    const double drift = std::min(seconds(now - progress_) / kDriftSeconds, 1.0);
    return rate_ + (guess_ - rate_) * drift;
  }
  const double silent_s = seconds(now - progress_);
  const double expected_s = static_cast<double>(in_flight_) / rate_;
  return silent_s <= expected_s ? rate_ : static_cast<double>(in_flight_) / silent_s;
}

uint32_t ComputeRate::place_of(uint32_t position) {
  const auto width = static_cast<uint32_t>(std::bit_width(position));
  return std::min(width > kFirst ? width - kFirst : 0, kPlaces - 1);
}

void ComputeRate::measured(uint32_t position, uint32_t rows, double seconds) {
  if (step_s_ == 0 || seconds < step_s_) {
    step_s_ = seconds;
  } else {
    step_s_ += (seconds - step_s_) * 0.001;  // so that a lucky one is forgotten
  }
  if (rows < 8) return;  // a few rows tell what a step costs, not what a token does
  double& mean = seconds_[place_of(position + rows / 2)];
  const double sample = seconds / rows;
  mean = mean == 0 ? sample : 0.7 * mean + 0.3 * sample;
}

double ComputeRate::seconds_per_token(uint32_t position) const {
  const uint32_t place = place_of(position);
  for (uint32_t away = 0; away < kPlaces; ++away) {
    if (place >= away && seconds_[place - away] > 0) return seconds_[place - away];
    if (place + away < kPlaces && seconds_[place + away] > 0) return seconds_[place + away];
  }
  return 0;
}

bool Breaker::allows(Clock::TimePoint now) {
  if (!open_) return true;
  if (probing_ || now < probe_at_) return false;
  probing_ = true;
  return true;
}

void Breaker::succeeded() {
  if (open_ && !probing_) return;
  failures_ = 0;
  open_ = probing_ = false;
  pause_ = {};
}

void Breaker::failed(Clock::TimePoint now, bool outright) {
  if (open_ && !std::exchange(probing_, false)) return;
  ++failures_;
  if (!open_ && !outright && failures_ < kFailuresMax) return;
  if (!open_) ++openings_;
  open_ = true;
  pause_ = std::clamp(pause_ * 2, kFirstPause, kLongestPause);
  probe_at_ = now + pause_;
}

}  // namespace spillway::cache
