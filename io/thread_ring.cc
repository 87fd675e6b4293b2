#include "io/thread_ring.h"

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "io/disk_file.h"
#include "runtime/check.h"

namespace spillway::io {
namespace {

DiskFile& file_of(const Operation& operation) {
  return static_cast<DiskFile&>(*operation.transfer.file);
}

int64_t call_system(const Operation& operation) {
  const int fd = file_of(operation).fd();
  const auto at = static_cast<off_t>(operation.transfer.offset + operation.moved);
  const std::span<std::byte> rest = operation.rest();
  ssize_t answer = 0;
  switch (operation.kind) {
    case Operation::Kind::kRead:
      answer = pread(fd, rest.data(), rest.size(), at);
      break;
    case Operation::Kind::kWrite:
      answer = pwrite(fd, rest.data(), rest.size(), at);
      break;
    case Operation::Kind::kSync:
      answer = fdatasync(fd);
      break;
  }
  return answer < 0 ? -errno : answer;
}

}  // namespace

ThreadRing::ThreadRing(EngineLoop& loop, const Options& options) : operations_(loop, *this) {
  CHECK(options.threads >= 2);
  description_ = std::to_string(options.threads) + " threads with pread and pwrite";
  if (!options.why.empty()) description_ += " (" + options.why + ")";
  for (uint32_t i = 0; i < options.threads; ++i) {
    threads_.emplace_back([this, i] { work(i); });
  }
}

ThreadRing::~ThreadRing() {
  {
    const std::lock_guard lock(mutex_);
    CHECK(queued_ == 0);
    ending_ = true;
  }
  added_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Result<std::shared_ptr<File>> ThreadRing::open(const std::string& path, OpenOptions options) {
  auto file = DiskFile::open(path, options);
  if (!file) return file.error();
  return std::shared_ptr<File>(std::move(*file));
}

Result<> ThreadRing::rename(const std::string& from, const std::string& to) {
  return rename_file(from, to);
}

Task<Result<>> ThreadRing::read(Transfer transfer, StopFlag& stop) {
  return operations_.run(Operation::Kind::kRead, std::move(transfer), &stop);
}

Task<Result<>> ThreadRing::write(Transfer transfer, StopFlag& stop) {
  return operations_.run(Operation::Kind::kWrite, std::move(transfer), &stop);
}

Task<Result<>> ThreadRing::sync(Transfer of, StopFlag& stop) {
  return operations_.run(Operation::Kind::kSync, std::move(of), &stop);
}

RingStats ThreadRing::stats() const {
  const std::lock_guard lock(mutex_);
  return operations_.stats(queued_);
}

void ThreadRing::start(std::unique_ptr<Operation> operation) {
  const bool is_read = operation->kind == Operation::Kind::kRead;
  {
    const std::lock_guard lock(mutex_);
    queue_of(operation->kind).push_back(*operation.release());
    ++queued_;
  }
  if (is_read) {
    added_.notify_one();
  } else {
    added_.notify_all();  // the one that is notified might not write
  }
}

void ThreadRing::give_up(Operation& operation) {
  {
    const std::lock_guard lock(mutex_);
    if (!operation.linked()) return;  // a thread is in it
    operation.unlink();
    --queued_;
  }
  operations_.end_later(std::unique_ptr<Operation>(&operation), cancelled_error());
}

std::unique_ptr<Operation> ThreadRing::take(bool reads_only) {
  std::unique_lock lock(mutex_);
  for (;;) {
    IntrusiveList<Operation>* queue = nullptr;
    if (!reads_.empty()) {
      queue = &reads_;
    } else if (!reads_only && !others_.empty()) {
      queue = &others_;
    }
    if (queue != nullptr) {
      --queued_;
      return std::unique_ptr<Operation>(&queue->pop_front());
    }
    if (ending_) return nullptr;
    added_.wait(lock);
  }
}

void ThreadRing::work(uint32_t index) {
  pthread_setname_np(pthread_self(), ("disk " + std::to_string(index)).c_str());
  const asio::any_io_executor engine = operations_.loop().executor();
  while (auto operation = take(index == 0)) {
    std::optional<Result<>> result;
    do {
      result = take_answer(*operation, file_of(*operation).path(), call_system(*operation));
    } while (!result);
    engine.execute([this, ended = std::move(operation), what = std::move(*result)]() mutable {
      operations_.end(std::move(ended), std::move(what));
    });
  }
}

}  // namespace spillway::io
