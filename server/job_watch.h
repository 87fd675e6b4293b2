// When things happened to one job, for the metrics. Network thread only.
#pragma once

#include <chrono>
#include <optional>

#include "scheduler/request.h"
#include "server/metrics.h"

namespace spillway::server {

class JobWatch {
 public:
  explicit JobWatch(Metrics& metrics) : metrics_(&metrics) {}

  // Each output, in order.
  void see(const scheduler::Output& output) {
    if (output.finish) finish_ = *output.finish;
    if (output.tokens.empty()) return;
    const auto now = Clock::now();
    if (!first_) {
      first_ = seconds_since(start_, now);
    } else {
      metrics_->observe_token_gap(seconds_since(last_, now));
    }
    last_ = now;
  }
  // The output that is the last of a request which ended well.
  void end(const scheduler::Output& output) {
    const double total = seconds_since(start_, Clock::now());
    metrics_->observe_request(output.usage,
                              {.to_first_token = first_.value_or(total), .total = total},
                              finish_ == scheduler::FinishReason::kLength ? "length" : "stop");
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point start, Clock::time_point now) {
    return std::chrono::duration<double>(now - start).count();
  }

  Metrics* metrics_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_;
  std::optional<double> first_;
  scheduler::FinishReason finish_ =
      scheduler::FinishReason::kStop;  // of the choice that ended last
};

}  // namespace spillway::server
