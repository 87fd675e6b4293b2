// A bounded pool of threads for long plain work (tokenizing, templates, checksums of big batches),
// so that neither the engine nor a network thread does it.
//
//   Result<Tokens> tokens = co_await pool.run([text] { return tokenize(text); });
//
// The coroutine suspends; it goes on, with the result, on its own executor, whichever that is.
// Bound: `jobs_max` jobs that wait for a thread. Nobody waits beyond it: run() then returns
// kResourceExhausted at once. Work that throws ends the process (a bug).
//
// Threads: run() from any. A StopFlag given to run() belongs to the awaiting coroutine's thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/intrusive_list.h"
#include "runtime/result.h"
#include "runtime/stop.h"
#include "runtime/suspend.h"
#include "runtime/task.h"

namespace spillway {

class WorkerPool {
  template <class R>
  struct Wrapped {
    using type = Result<R>;
  };
  template <class R>
  struct Wrapped<Result<R>> {
    using type = Result<R>;
  };

 public:
  // What run(f) gives: Result<T> where f returns T, and also where it returns Result<T>.
  template <class F>
  using Outcome = typename Wrapped<std::invoke_result_t<F&>>::type;

  struct Options {
    uint32_t threads = 1;
    uint32_t jobs_max = 1024;
  };
  explicit WorkerPool(const Options& options);
  // Joins the threads. REQUIRES: no run() is waiting. Destroy it before the executors it resumes
  // on.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Suspends until `work` has run. With `stop`, a job that no thread has begun yet ends with
  // kCancelled when it stops; one that runs is awaited, for what it uses belongs to it.
  template <class F>
  Task<Outcome<F>> run(F work) {
    return run_job(std::move(work), nullptr);
  }
  template <class F>
  Task<Outcome<F>> run(F work, StopFlag& stop) {
    return run_job(std::move(work), &stop);
  }

  uint32_t threads() const { return static_cast<uint32_t>(threads_.size()); }
  uint64_t queued() const;  // a snapshot

 private:
  // Lives in run()'s frame. Taken from the queue under mutex_; whoever took it resumes it.
  class Job : public ListNode<Job>, public StopListener {
   public:
    Job(WorkerPool& pool, StopFlag* stop) : pool_(pool), stop_(stop) {}
    void start(Resumer resumer);
    // On the coroutine's thread, after it was resumed: why the work did not run, if so.
    std::optional<Error> finish();
    virtual void execute() noexcept = 0;

   protected:
    ~Job() = default;

   private:
    friend class WorkerPool;
    void on_stop() override;
    WorkerPool& pool_;
    StopFlag* const stop_;
    Resumer resumer_;
    std::optional<Error> refused_;
  };

  template <class F>
  struct JobOf final : Job {
    JobOf(WorkerPool& pool, F f, StopFlag* stop) : Job(pool, stop), function(std::move(f)) {}
    void execute() noexcept override {
      if constexpr (std::is_void_v<std::invoke_result_t<F&>>) {
        function();
        outcome.emplace();
      } else {
        outcome.emplace(function());
      }
    }
    F function;
    std::optional<Outcome<F>> outcome;
  };

  template <class F>
  Task<Outcome<F>> run_job(F work, StopFlag* stop) {
    JobOf<F> job(*this, std::move(work), stop);
    co_await suspend(job);
    if (auto refused = job.finish()) co_return std::move(*refused);
    co_return std::move(*job.outcome);
  }

  void work(uint32_t index);

  const uint32_t jobs_max_;
  mutable std::mutex mutex_;
  std::condition_variable job_added_;
  IntrusiveList<Job> queue_;  // all below under mutex_
  uint64_t queued_ = 0;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

// Runs plain work elsewhere; suspends until it has run. An error: it was not run.
using RunWork = std::function<Task<Result<>>(std::function<void()> work)>;

}  // namespace spillway
