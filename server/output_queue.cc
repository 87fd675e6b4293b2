#include "server/output_queue.h"

#include <boost/asio/post.hpp>

namespace spillway::server {
namespace {

size_t bytes_of(const scheduler::Output& output) {
  size_t bytes = sizeof output + output.text.size();
  for (const auto* tokens : {&output.tokens, &output.prompt_tokens}) {
    for (const auto& token : *tokens) {
      bytes += sizeof token + token.top.size() * sizeof(model::TokenLogprob);
    }
  }
  return bytes;
}

}  // namespace

class OutputQueue::Sink final : public scheduler::OutputSink {
 public:
  Sink(std::shared_ptr<OutputQueue> queue, uint32_t index)
      : queue_(std::move(queue)), index_(index) {}
  void on_output(scheduler::Output output) override { queue_->push(index_, std::move(output)); }

 private:
  std::shared_ptr<OutputQueue> queue_;
  uint32_t index_;
};

OutputQueue::OutputQueue(boost::asio::any_io_executor executor, Wake& wake)
    : executor_(std::move(executor)), wake_(&wake) {}

std::shared_ptr<scheduler::OutputSink> OutputQueue::sink(uint32_t index) {
  return std::make_shared<Sink>(shared_from_this(), index);
}

void OutputQueue::push(uint32_t index, scheduler::Output output) {
  {
    const std::lock_guard lock(mutex_);
    if (detached_ || overflowed_) return;
    const bool was_empty = items_.empty();
    // Prompt log-probabilities come once and are bounded by the context, whatever the reader does.
    if (output.prompt_tokens.empty()) bytes_ += bytes_of(output);
    if (bytes_ > kBytesMax) {
      overflowed_ = true;
    } else {
      items_.emplace_back(index, std::move(output));
    }
    if (!was_empty) return;  // whoever made it non-empty has sent the wake
  }
  boost::asio::post(executor_, [self = shared_from_this()] {
    if (self->wake_ != nullptr) self->wake_->notify();
  });
}

std::vector<OutputQueue::Item> OutputQueue::take() {
  const std::lock_guard lock(mutex_);
  bytes_ = 0;
  return std::exchange(items_, {});
}

bool OutputQueue::overflowed() {
  const std::lock_guard lock(mutex_);
  return overflowed_;
}

void OutputQueue::detach() {
  wake_ = nullptr;
  const std::lock_guard lock(mutex_);
  detached_ = true;
  items_.clear();
}

}  // namespace spillway::server
