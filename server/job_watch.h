// When things happened to one job, for the metrics. The job is open as long as this lives. Network
// thread only.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "scheduler/request.h"
#include "server/metrics.h"

namespace spillway::server {

class JobWatch {
 public:
  explicit JobWatch(Metrics& metrics) : metrics_(metrics) { metrics_.work_began(); }
  ~JobWatch() { metrics_.work_ended(); }
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  // Each output, in order.
  void see(const scheduler::Output& output) {
    if (output.finish) finish_ = *output.finish;
    if (output.tokens.empty()) return;
    const auto now = Clock::now();
    if (!first_) first_ = seconds_since(start_, now);
    const auto [entry, is_new] = last_.try_emplace({output.request, output.choice}, now);
    if (!is_new) metrics_.observe_token_gap(seconds_since(entry->second, now));
    entry->second = now;
  }
  // The last output of a request.
  void end(const scheduler::Output& output) {
    const bool well =
        finish_ == scheduler::FinishReason::kStop || finish_ == scheduler::FinishReason::kLength;
    if (!well) return;  // whoever sends the error counts it
    const double total = seconds_since(start_, Clock::now());
    metrics_.observe_request(output.usage,
                             {.to_first_token = first_.value_or(total), .total = total},
                             finish_ == scheduler::FinishReason::kLength ? "length" : "stop");
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point start, Clock::time_point now) {
    return std::chrono::duration<double>(now - start).count();
  }

  Metrics& metrics_;
  Clock::time_point start_ = Clock::now();
  std::map<std::pair<scheduler::RequestId, uint32_t>, Clock::time_point>
      last_;  // token of a choice
  std::optional<double> first_;
  scheduler::FinishReason finish_ =
      scheduler::FinishReason::kStop;  // of the choice that ended last
};

}  // namespace spillway::server
