#include "io/uring_ring.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/check.h"

namespace spillway::io {
namespace {

constexpr size_t kRangeBytesMax = size_t{1} << 30;  // of one registered buffer, by the kernel

// The parker has the odd ones.
constexpr uint64_t kCancelTag = 2;
constexpr uint64_t kOperationTag = 4;
constexpr uint32_t kTagBits = 3;

DiskFile& file_of(const Operation& operation) {
  return static_cast<DiskFile&>(*operation.transfer.file);
}

bool is_read(const Operation& operation) { return operation.kind == Operation::Kind::kRead; }

std::string mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

std::string why_not_registered(int error_number) {
  if (error_number != ENOMEM) {
    return std::string("io_uring_register was refused: ") + std::strerror(error_number);
  }
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return "only " + std::to_string(limit.rlim_cur >> 10) +
         " KiB of memory may be locked; raise it with ulimit -l or LimitMEMLOCK=";
}

}  // namespace

UringRing::UringRing(UringParker& parker, EngineLoop& loop, const Options& options)
    : parker_(parker),
      operations_(loop, *this),
      slots_(options.entries),
      others_max_(std::max(1u, options.entries / 4)) {
  CHECK(options.entries >= 4);
  for (uint32_t i = options.entries; i > 0; --i) free_slots_.push_back(i - 1);
  // Empty tables, filled as files and memory come (Linux 5.19). Without them all works, dearer.
  if (io_uring_register_files_sparse(&parker.ring(), options.files_max) == 0) {
    file_taken_.resize(options.files_max);
  }
  if (io_uring_register_buffers_sparse(&parker.ring(), options.ranges_max) == 0) {
    for (uint32_t i = options.ranges_max; i > 0; --i) free_ranges_.push_back(i - 1);
  }
  parker.set_client(this);
}

UringRing::~UringRing() {
  parker_.set_client(nullptr);
  CHECK(free_slots_.size() == slots_.size());
}

Result<std::shared_ptr<File>> UringRing::open(const std::string& path, OpenOptions options) {
  auto file = DiskFile::open(path, options);
  if (!file) return file.error();
  register_file(**file);
  return std::shared_ptr<File>(std::move(*file));
}

void UringRing::register_file(DiskFile& file) {
  const auto free = std::find(file_taken_.begin(), file_taken_.end(), false);
  if (free == file_taken_.end()) return;
  const auto index = static_cast<uint32_t>(free - file_taken_.begin());
  const int fd = file.fd();
  if (io_uring_register_files_update(&parker_.ring(), index, &fd, 1) != 1) return;
  *free = true;
  file.ring_index = index;
  file.when_closed = [this](DiskFile& closing) { forget_file(closing); };
}

// Where the kernel refuses (the loop's thread has ended), the entry stays taken.
void UringRing::forget_file(const DiskFile& file) {
  const int none = -1;
  if (io_uring_register_files_update(&parker_.ring(), file.ring_index, &none, 1) == 1) {
    file_taken_[file.ring_index] = false;
  }
}

Result<> UringRing::rename(const std::string& from, const std::string& to) {
  return rename_file(from, to);
}

Task<Result<>> UringRing::read(Transfer transfer, StopFlag& stop) {
  return operations_.run(Operation::Kind::kRead, std::move(transfer), &stop);
}

Task<Result<>> UringRing::write(Transfer transfer, StopFlag& stop) {
  return operations_.run(Operation::Kind::kWrite, std::move(transfer), &stop);
}

Task<Result<>> UringRing::sync(Transfer of, StopFlag& stop) {
  return operations_.run(Operation::Kind::kSync, std::move(of), &stop);
}

Result<> UringRing::register_memory(std::span<std::byte> memory) {
  CHECK(memory.size() <= kRangeBytesMax);
  if (memory.empty()) return {};
  int answer = -ENOSPC;  // of the table
  if (!free_ranges_.empty()) {
    const iovec piece{.iov_base = memory.data(), .iov_len = memory.size()};
    const __u64 no_tag = 0;
    answer = io_uring_register_buffers_update_tag(&parker_.ring(), free_ranges_.back(), &piece,
                                                  &no_tag, 1);
  }
  if (answer != 1) {
    refused_bytes_ += memory.size();
    why_refused_ = why_not_registered(-answer);
    return Error{ErrorCode::kUnavailable,
                 mebibytes(memory.size()) +
                     " for transfers are not registered with io_uring: " + why_refused_};
  }
  const Range range{memory.data(), memory.size(), free_ranges_.back()};
  free_ranges_.pop_back();
  const auto after = std::find_if(ranges_.begin(), ranges_.end(),
                                  [&](const Range& other) { return other.begin > range.begin; });
  ranges_.insert(after, range);
  registered_bytes_ += memory.size();
  return {};
}

// What the kernel still transfers keeps the old piece until it has ended.
void UringRing::forget_memory(std::span<const std::byte> memory) {
  const std::byte* const end = memory.data() + memory.size();
  std::erase_if(ranges_, [&](const Range& range) {
    if (range.begin < memory.data() || range.begin >= end) return false;
    CHECK(range.begin + range.bytes <= end);
    const iovec none{};
    const __u64 no_tag = 0;
    const int answer =
        io_uring_register_buffers_update_tag(&parker_.ring(), range.index, &none, &no_tag, 1);
    registered_bytes_ -= range.bytes;
    if (answer == 1) free_ranges_.push_back(range.index);  // else the entry is not used again
    return true;
  });
}

const UringRing::Range* UringRing::range_of(std::span<const std::byte> memory) const {
  const auto after = std::upper_bound(
      ranges_.begin(), ranges_.end(), memory.data(),
      [](const std::byte* address, const Range& range) { return address < range.begin; });
  if (memory.empty() || after == ranges_.begin()) return nullptr;
  const Range& range = *(after - 1);
  const bool inside = memory.data() + memory.size() <= range.begin + range.bytes;
  return inside ? &range : nullptr;
}

RingStats UringRing::stats() const { return operations_.stats(queued_); }

std::string UringRing::description() const {
  if (refused_bytes_ == 0) return "io_uring";
  return "io_uring (plain transfers for " + mebibytes(refused_bytes_) + ": " + why_refused_ + ")";
}

void UringRing::start(std::unique_ptr<Operation> operation) {
  (is_read(*operation) ? reads_ : others_).push_back(*operation.release());
  ++queued_;  // fill() comes at the end of this turn
}

void UringRing::give_up(Operation& operation) {
  const bool has_slot = slots_[operation.slot].operation.get() == &operation;
  if (!has_slot) {
    operation.unlink();
    --queued_;
    operations_.end_later(std::unique_ptr<Operation>(&operation), cancelled_error());
    return;
  }
  if (operation.linked()) return;  // waits to be tried again: fill() ends it
  // Helps where the kernel has not begun; else the operation ends in its own time.
  io_uring_sqe* entry = parker_.entry();
  if (entry == nullptr) return;
  io_uring_prep_cancel64(entry, tag_of(operation), 0);
  io_uring_sqe_set_data64(entry, kCancelTag);
}

Operation* UringRing::next_queued() {
  if (free_slots_.empty()) return nullptr;
  if (!reads_.empty()) return &reads_.front();
  if (!others_.empty() && others_in_flight_ < others_max_) return &others_.front();
  return nullptr;
}

void UringRing::fill() {
  while (!again_.empty()) {
    Operation& operation = again_.front();
    if (operation.abandoned()) {
      again_.pop_front();
      end(operation.slot, cancelled_error());
    } else {
      if (!submit(operation)) return;
      again_.pop_front();
    }
  }
  while (Operation* operation = next_queued()) {
    operation->slot = free_slots_.back();
    if (!submit(*operation)) return;
    operation->unlink();
    --queued_;
    free_slots_.pop_back();
    slots_[operation->slot].operation.reset(operation);
    if (!is_read(*operation)) ++others_in_flight_;
  }
}

uint64_t UringRing::tag_of(const Operation& operation) const {
  return uint64_t{slots_[operation.slot].generation} << 32 | uint64_t{operation.slot} << kTagBits |
         kOperationTag;
}

bool UringRing::submit(Operation& operation) {
  io_uring_sqe* entry = parker_.entry();
  if (entry == nullptr) return false;
  prepare(*entry, operation);
  io_uring_sqe_set_data64(entry, tag_of(operation));
  return true;
}

void UringRing::prepare(io_uring_sqe& entry, const Operation& operation) {
  const DiskFile& file = file_of(operation);
  const bool fixed_file = file.ring_index != DiskFile::kNotRegistered;
  const int fd = fixed_file ? static_cast<int>(file.ring_index) : file.fd();
  const std::span<std::byte> rest = operation.rest();
  const auto bytes = static_cast<unsigned>(std::min(rest.size(), kRangeBytesMax));
  const uint64_t at = operation.transfer.offset + operation.moved;
  const Range* range = range_of(rest);  // none for a flush: it has no memory
  if (range != nullptr) ++fixed_transfers_;
  if (operation.kind == Operation::Kind::kSync) {
    io_uring_prep_fsync(&entry, fd, IORING_FSYNC_DATASYNC);
  } else if (is_read(operation) && range != nullptr) {
    io_uring_prep_read_fixed(&entry, fd, rest.data(), bytes, at, static_cast<int>(range->index));
  } else if (is_read(operation)) {
    io_uring_prep_read(&entry, fd, rest.data(), bytes, at);
  } else if (range != nullptr) {
    io_uring_prep_write_fixed(&entry, fd, rest.data(), bytes, at, static_cast<int>(range->index));
  } else {
    io_uring_prep_write(&entry, fd, rest.data(), bytes, at);
  }
  if (fixed_file) io_uring_sqe_set_flags(&entry, IOSQE_FIXED_FILE);
}

void UringRing::on_completion(uint64_t user_data, int32_t result) {
  if (user_data == kCancelTag) return;
  const auto index = static_cast<uint32_t>(user_data) >> kTagBits;
  const auto generation = static_cast<uint32_t>(user_data >> 32);
  if (index >= slots_.size() || slots_[index].operation == nullptr ||
      slots_[index].generation != generation) {
    ++stale_completions_;
    return;
  }
  Operation& operation = *slots_[index].operation;
  auto outcome = take_answer(operation, file_of(operation).path(), result);
  if (!outcome) {
    again_.push_back(operation);
    return;
  }
  end(index, std::move(*outcome));
}

void UringRing::end(uint32_t slot, Result<> result) {
  Slot& of = slots_[slot];
  auto operation = std::move(of.operation);
  ++of.generation;
  free_slots_.push_back(slot);
  if (!is_read(*operation)) --others_in_flight_;
  operations_.end(std::move(operation), std::move(result));
}

}  // namespace spillway::io
