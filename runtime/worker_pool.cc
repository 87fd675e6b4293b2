#include "runtime/worker_pool.h"

#include <pthread.h>

#include <string>

namespace spillway {

WorkerPool::WorkerPool(const Options& options) : jobs_max_(options.jobs_max) {
  CHECK(options.threads > 0);
  CHECK(options.jobs_max > 0);
  for (uint32_t i = 0; i < options.threads; ++i) {
    threads_.emplace_back([this, i] { work(i); });
  }
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    CHECK(queue_.empty());
    ending_ = true;
  }
  job_added_.notify_all();
  for (auto& thread : threads_) thread.join();
}

uint64_t WorkerPool::queued() const {
  const std::lock_guard lock(mutex_);
  return queued_;
}

void WorkerPool::work(uint32_t index) {
  pthread_setname_np(pthread_self(), ("worker " + std::to_string(index)).c_str());
  std::unique_lock lock(mutex_);
  for (;;) {
    while (queue_.empty()) {
      if (ending_) return;
      job_added_.wait(lock);
    }
    Job& job = queue_.pop_front();
    --queued_;
    lock.unlock();
    job.execute();
    Resumer resumer(std::move(job.resumer_));  // once it is resumed the job may be gone
    resumer.resume();
    lock.lock();
  }
}

void WorkerPool::Job::start(Resumer resumer) {
  if (stop_ != nullptr && stop_->stopped()) {
    refused_ = cancelled_error();
    return resumer.resume();
  }
  if (stop_ != nullptr) stop_->add(*this);  // before a thread can take the job
  {
    const std::lock_guard lock(pool_.mutex_);
    if (pool_.queued_ < pool_.jobs_max_) {
      resumer_ = std::move(resumer);
      pool_.queue_.push_back(*this);
      ++pool_.queued_;
      pool_.job_added_.notify_one();
      return;
    }
  }
  refused_ = Error{ErrorCode::kResourceExhausted,
                   "all workers are busy and their queue is full; try again later"};
  resumer.resume();
}

void WorkerPool::Job::on_stop() {
  {
    const std::lock_guard lock(pool_.mutex_);
    if (!ListNode<Job>::linked()) return;  // runs, or has run
    ListNode<Job>::unlink();
    --pool_.queued_;
  }
  refused_ = cancelled_error();
  resumer_.resume();
}

std::optional<Error> WorkerPool::Job::finish() {
  if (StopListener::linked()) StopListener::unlink();
  return std::move(refused_);
}

}  // namespace spillway
