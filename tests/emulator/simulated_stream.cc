#include "tests/emulator/simulated_stream.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "runtime/check.h"

using spillway::emulator::Launcher;
using spillway::emulator::Operation;
using spillway::emulator::SimulatedGpu;
using spillway::emulator::SimulatedMemory;

namespace {

constexpr int kGarbage = 0xa5;

}  // namespace

CUstream_st::CUstream_st(SimulatedGpu& gpu, int device, uint64_t seed)
    : gpu_(gpu), device_(device), random_(seed), tail_(new Operation), head_(tail_) {
  if (gpu.threads) thread_ = std::thread([this] { run_all(); });
}

CUstream_st::~CUstream_st() {
  stop_.store(true, std::memory_order_release);
  wakes_.fetch_add(1, std::memory_order_release);
  wakes_.notify_all();
  if (thread_.joinable()) thread_.join();
  while (head_ != nullptr) delete std::exchange(head_, head_->next.load(std::memory_order_relaxed));
}

void CUstream_st::add(std::unique_ptr<Operation> operation) {
  std::vector<Operation::Range> ranges;
  for (const auto& copy : operation->copies) {
    ranges.push_back({copy.from, copy.bytes});
    ranges.push_back({copy.to, copy.bytes});
  }
  if (operation->set.at != nullptr) ranges.push_back(operation->set);
  if (operation->word != nullptr) {
    ranges.push_back({reinterpret_cast<const std::byte*>(operation->word), sizeof(uint32_t)});
  }
  named_.emplace_back(++added_count_, std::move(ranges));
  if (operation->kind == Operation::Kind::kWaitWord) {
    word_waits_.push_back({added_count_, operation->word, operation->word_value});
  }
  Operation* const added = operation.release();
  tail_->next.store(added, std::memory_order_release);
  tail_ = added;
  wakes_.fetch_add(1, std::memory_order_release);
  wakes_.notify_all();
}

uint64_t CUstream_st::behind_a_word() {
  const uint64_t finished = finished_.load(std::memory_order_acquire);
  const auto is_over = [&](const WordWait& wait) {
    if (wait.count <= finished) return true;
    const uint32_t word = wait.word->load(std::memory_order_acquire);
    return static_cast<int32_t>(word - wait.value) >= 0;
  };
  while (!word_waits_.empty() && is_over(word_waits_.front())) word_waits_.pop_front();
  return word_waits_.empty() ? 0 : added_count_ - word_waits_.front().count;
}

bool CUstream_st::names(const std::byte* at, size_t bytes) {
  const uint64_t finished = finished_.load(std::memory_order_relaxed);
  while (!named_.empty() && named_.front().first <= finished) named_.pop_front();
  for (const auto& [count, ranges] : named_) {
    for (const auto& range : ranges) {
      if (at < range.at + range.bytes && range.at < at + bytes) return true;
    }
  }
  return false;
}

bool CUstream_st::ready(const Operation& operation) const {
  switch (operation.kind) {
    case Operation::Kind::kWaitEvent:
      return operation.recording->load(std::memory_order_acquire);
    case Operation::Kind::kWaitWord: {
      const uint32_t word = operation.word->load(std::memory_order_acquire);
      return static_cast<int32_t>(word - operation.word_value) >= 0;
    }
    default:
      return true;
  }
}

bool CUstream_st::runnable() const {
  const Operation* const first = front();
  return gpu_.error.load(std::memory_order_relaxed) == 0 && first != nullptr && ready(*first);
}

// An error is that of one operation, which does not do what it should; what runs beside it ends.
bool CUstream_st::fails_now(const Operation& operation) {
  if (operation.kind != Operation::Kind::kKernel && operation.kind != Operation::Kind::kCopies) {
    return false;
  }
  if (until_error_.load(std::memory_order_acquire) >= 0 && until_error_.fetch_sub(1) == 0) {
    gpu_.error.store(error_then_.load(std::memory_order_relaxed), std::memory_order_seq_cst);
    return true;
  }
  if (gpu_.until_error.load(std::memory_order_relaxed) < 0) return false;
  if (gpu_.until_error.fetch_sub(1, std::memory_order_relaxed) != 0) return false;
  gpu_.error.store(gpu_.error_then.load(std::memory_order_relaxed), std::memory_order_seq_cst);
  return true;
}

// A copy's bytes come in any order until all are there; until then its end is garbage.
bool CUstream_st::run_copy_part(Operation& operation) {
  if (operation.parts_done == 0) {
    for (size_t i = operation.copies.size(); i > 1; --i) {
      std::swap(operation.copies[i - 1], operation.copies[random_.below(i)]);
    }
  }
  const auto& copy = operation.copies[operation.parts_done / 2];
  const size_t half = copy.bytes / 2;
  if (operation.parts_done++ % 2 == 0) {
    std::memcpy(copy.to, copy.from, half);
    std::memset(copy.to + half, kGarbage, copy.bytes - half);
    return false;
  }
  std::memcpy(copy.to + half, copy.from + half, copy.bytes - half);
  return operation.parts_done == 2 * operation.copies.size();
}

void CUstream_st::run_blocks(const spillway::kernels::cuda::LaunchShape& shape,
                             const std::function<void()>& body) {
  if (launcher_ == nullptr) launcher_ = std::make_unique<Launcher>();
  launcher_->run(shape, body);
  if (launcher_->defects().empty()) return;
  std::fputs(launcher_->text().c_str(), stderr);
  gpu_.error.store(cudaErrorLaunchFailure, std::memory_order_seq_cst);
}

void CUstream_st::run_simple(Operation& operation) {
  switch (operation.kind) {
    case Operation::Kind::kKernel:
      operation.kernel();
      operation.kernel = nullptr;
      break;
    case Operation::Kind::kSet:
      std::memset(const_cast<std::byte*>(operation.set.at), operation.value, operation.set.bytes);
      break;
    case Operation::Kind::kRecord:
      operation.recording->store(true, std::memory_order_release);
      break;
    case Operation::Kind::kWriteWord:
      operation.word->store(operation.word_value, std::memory_order_release);
      break;
    case Operation::Kind::kCopies:
    case Operation::Kind::kWaitEvent:
    case Operation::Kind::kWaitWord:
      break;
  }
}

void CUstream_st::finish() {
  Operation* const done = front();
  delete std::exchange(head_, done);
  finished_.fetch_add(1, std::memory_order_release);
}

void CUstream_st::run_part() {
  Operation& operation = *front();
  const bool own_alone = operation.kind == Operation::Kind::kKernel && !operation.reaches_all;
  const SimulatedMemory::Access access(gpu_.memory,
                                       own_alone ? device_ : SimulatedMemory::kEveryDevice);
  if (operation.parts_done == 0 && fails_now(operation)) return;
  if (operation.kind == Operation::Kind::kCopies) {
    if (run_copy_part(operation)) finish();
    return;
  }
  run_simple(operation);
  finish();
}

void CUstream_st::run_whole(Operation& operation) {
  if (fails_now(operation)) return;
  if (operation.kind != Operation::Kind::kCopies) {
    run_simple(operation);
    return;
  }
  while (!run_copy_part(operation)) {
  }
}

void CUstream_st::sleep(uint64_t us_max) {
  std::this_thread::sleep_for(std::chrono::microseconds(random_.below(us_max + 1)));
}

void CUstream_st::run_all() {
  const auto over = [this] { return stop_.load(std::memory_order_acquire); };
  while (!over()) {
    const uint32_t wakes = wakes_.load(std::memory_order_acquire);
    Operation* const next = front();
    if (next == nullptr || gpu_.error.load(std::memory_order_relaxed) != 0) {
      if (!over()) wakes_.wait(wakes, std::memory_order_acquire);
      continue;
    }
    if (!ready(*next)) {
      sleep(40);
      continue;
    }
    if (random_.below(4) == 0) sleep(60);
    const bool tells =
        next->kind == Operation::Kind::kRecord || next->kind == Operation::Kind::kWriteWord;
    if (tells && gpu_.late_us > 0) sleep(gpu_.late_us);
    running_.store(true, std::memory_order_seq_cst);
    // Whoever has seen the error waits for what runs: either it sees us run, or we see the error.
    if (gpu_.error.load(std::memory_order_seq_cst) == 0) {
      run_whole(*next);
      if (gpu_.error.load(std::memory_order_relaxed) == 0) finish();
    }
    running_.store(false, std::memory_order_seq_cst);
  }
}
