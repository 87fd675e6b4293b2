#include "tests/sim/sim_disk.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/check.h"

namespace spillway::sim {

using io::Operation;

namespace {

constexpr auto kOff = "the simulated machine is off";

Error off() { return {ErrorCode::kIo, kOff}; }

}  // namespace

class SimFile final : public io::File {
 public:
  SimFile(SimDisk& on, std::string name, std::shared_ptr<SimImage> bytes, bool has_lock)
      : disk(&on), path(std::move(name)), image(std::move(bytes)), locked(has_lock) {}
  ~SimFile() override {
    if (locked && !disk->crashed_) disk->files_.locks.erase(image.get());
  }
  uint64_t size() const override { return image->size(); }
  bool direct() const override { return true; }
  Result<> allocate(uint64_t bytes) override {
    if (disk->crashed_) return off();
    const uint64_t others = disk->files_.used_bytes() - image->size();
    if (disk->faults.no_space_to_allocate || others + bytes > disk->files_.capacity_bytes) {
      return Error{ErrorCode::kResourceExhausted,
                   path + ": no room for " + std::to_string(bytes) + " bytes"};
    }
    image->resize(bytes);
    return {};
  }

  SimDisk* const disk;  // outlives its files
  const std::string path;
  const std::shared_ptr<SimImage> image;
  const bool locked;
};

namespace {

SimFile& file_of(const Operation& operation) {
  return static_cast<SimFile&>(*operation.transfer.file);
}

}  // namespace

SimDisk::SimDisk(EngineLoop& loop, SimFiles& files, uint64_t seed, uint32_t entries)
    : files_(files),
      operations_(loop, *this),
      prng_(seed),
      entries_(entries),
      pid_(files.next_pid++) {
  CHECK(entries > 0);
}

SimDisk::~SimDisk() { CHECK(in_flight_.empty()); }

Result<std::shared_ptr<io::File>> SimDisk::open(const std::string& path, io::OpenOptions options) {
  if (crashed_) return off();
  auto image = files_.find(path);
  if (image == nullptr && !options.create) {
    return Error{ErrorCode::kNotFound, path + " is not there"};
  }
  if (image == nullptr) image = files_.create(path);
  if (options.lock) {
    const auto [owner, taken] = files_.locks.emplace(image.get(), pid_);
    if (!taken) {
      return Error{ErrorCode::kUnavailable,
                   path + " is in use by process " + std::to_string(owner->second)};
    }
  }
  return std::shared_ptr<io::File>(new SimFile(*this, path, std::move(image), options.lock));
}

Result<> SimDisk::rename(const std::string& from, const std::string& to) {
  if (crashed_) return off();
  if (!files_.rename(from, to)) return Error{ErrorCode::kNotFound, from + " is not there"};
  return {};
}

Task<Result<>> SimDisk::read(io::Transfer transfer, StopFlag& stop) {
  return operations_.run(Operation::Kind::kRead, std::move(transfer), &stop);
}

Task<Result<>> SimDisk::write(io::Transfer transfer, StopFlag& stop) {
  return operations_.run(Operation::Kind::kWrite, std::move(transfer), &stop);
}

Task<Result<>> SimDisk::sync(io::Transfer of, StopFlag& stop) {
  return operations_.run(Operation::Kind::kSync, std::move(of), &stop);
}

io::RingStats SimDisk::stats() const {
  return operations_.stats(static_cast<uint32_t>(reads_.size() + others_.size()));
}

void SimDisk::start(std::unique_ptr<Operation> operation) {
  if (crashed_) return operations_.end_later(std::move(operation), off());
  if (in_flight_.size() < entries_) return begin(std::move(operation));
  auto& queue = operation->kind == Operation::Kind::kRead ? reads_ : others_;
  queue.push_back(std::move(operation));
}

void SimDisk::give_up(Operation& operation) {
  auto& queue = operation.kind == Operation::Kind::kRead ? reads_ : others_;
  const auto found = std::find_if(queue.begin(), queue.end(),
                                  [&](const auto& queued) { return queued.get() == &operation; });
  if (found == queue.end()) return;  // in flight: it ends when it ends
  auto dropped = std::move(*found);
  queue.erase(found);
  operations_.end_later(std::move(dropped), cancelled_error());
}

void SimDisk::begin(std::unique_ptr<Operation> operation) {
  const Clock::TimePoint now = operations_.loop().clock().now();
  InFlight begun{std::move(operation), now, {}};
  const auto spread = static_cast<uint64_t>((faults.latency_max - faults.latency_min).count());
  Clock::Duration latency = faults.latency_min;
  if (spread > 0) latency += std::chrono::nanoseconds(prng_.below(spread + 1));
  if (chance(faults.stall)) latency += faults.stall_time;
  if (faults.bytes_per_s > 0) {
    const double seconds =
        static_cast<double>(begun.operation->transfer.memory.size()) / faults.bytes_per_s;
    busy_until_ =
        std::max(busy_until_, now) + std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
    begun.due = busy_until_;
  }
  begun.due += latency;
  if (begun.operation->kind == Operation::Kind::kSync) {
    begun.flushes = file_of(*begun.operation).image->unflushed();
  }
  in_flight_.push_back(std::move(begun));
}

void SimDisk::begin_queued() {
  while (in_flight_.size() < entries_) {
    auto& queue = reads_.empty() ? others_ : reads_;
    if (queue.empty()) return;
    auto next = std::move(queue.front());
    queue.pop_front();
    begin(std::move(next));
  }
}

std::optional<Clock::TimePoint> SimDisk::next_due() const {
  if (in_flight_.empty()) return std::nullopt;
  if (!faults.reorder) return in_flight_.front().due;
  return std::min_element(in_flight_.begin(), in_flight_.end(),
                          [](const auto& a, const auto& b) { return a.due < b.due; })
      ->due;
}

std::vector<std::span<const std::byte>> SimDisk::memory_of(Operation::Kind kind) const {
  std::vector<std::span<const std::byte>> memory;
  for (const InFlight& flight : in_flight_) {
    if (flight.operation->kind == kind) memory.emplace_back(flight.operation->transfer.memory);
  }
  return memory;
}

bool SimDisk::run_one() {
  const Clock::TimePoint now = operations_.loop().clock().now();
  const size_t among = faults.reorder ? in_flight_.size() : std::min<size_t>(in_flight_.size(), 1);
  std::vector<size_t> due;
  for (size_t i = 0; i < among; ++i) {
    if (in_flight_[i].due <= now) due.push_back(i);
  }
  if (due.empty()) return false;
  const auto chosen =
      in_flight_.begin() + static_cast<std::ptrdiff_t>(due[prng_.below(due.size())]);
  InFlight ending = std::move(*chosen);
  in_flight_.erase(chosen);
  Result<> result = perform(ending);
  operations_.end(std::move(ending.operation), std::move(result));
  begin_queued();
  return true;
}

Result<> SimDisk::perform(InFlight& ending) {
  Operation& operation = *ending.operation;
  switch (operation.kind) {
    case Operation::Kind::kRead:
      return perform_read(operation);
    case Operation::Kind::kWrite:
      return perform_write(operation);
    case Operation::Kind::kSync:
      break;
  }
  SimFile& file = file_of(operation);
  if (chance(faults.failed_sync)) {
    file.image->fail_flush(ending.flushes, prng_);
    return system_error(operation, file.path, EIO);
  }
  file.image->flush(ending.flushes);
  return {};
}

Result<> SimDisk::perform_read(Operation& operation) {
  SimFile& file = file_of(operation);
  SimImage& image = *file.image;
  const uint64_t offset = operation.transfer.offset;
  std::span<std::byte> memory = operation.transfer.memory;
  if (chance(faults.bit_rot) && offset < image.size()) {
    const uint64_t there = std::min<uint64_t>(memory.size(), image.size() - offset);
    image.flip_bit(offset + prng_.below(there), static_cast<unsigned>(prng_.below(8)));
  }
  if (chance(faults.read_error)) {
    std::memset(memory.data(), 0xEE, some_sectors(memory.size()));
    return system_error(operation, file.path, EIO);
  }
  const bool cut_short = chance(faults.short_read);
  if (cut_short) memory = memory.first(some_sectors(memory.size()));
  operation.moved = image.read(offset, memory);
  if (cut_short || operation.moved < memory.size()) return ends_early(operation, file.path);
  return {};
}

Result<> SimDisk::perform_write(Operation& operation) {
  SimFile& file = file_of(operation);
  SimImage& image = *file.image;
  std::span<const std::byte> bytes = operation.transfer.memory;
  uint64_t offset = operation.transfer.offset;
  const uint64_t end = offset + bytes.size();
  const uint64_t grows = end > image.size() ? end - image.size() : 0;
  if (chance(faults.no_space) ||
      (grows > 0 && files_.used_bytes() + grows > files_.capacity_bytes)) {
    return system_error(operation, file.path, ENOSPC);
  }
  if (chance(faults.write_error)) {
    if (grows == 0) image.write(offset, bytes.first(some_sectors(bytes.size())), prng_);
    return system_error(operation, file.path, EIO);
  }
  operation.moved = bytes.size();
  if (chance(faults.lost_write)) return {};
  if (chance(faults.misdirected_write) && image.size() >= bytes.size()) {
    const uint64_t places = (image.size() - bytes.size()) / io::kSectorBytes + 1;
    offset = prng_.below(places) * io::kSectorBytes;
  }
  if (faults.tear_next_write_after) {
    const uint64_t stored = std::min<uint64_t>(*faults.tear_next_write_after, bytes.size());
    bytes = bytes.first(stored);
    faults.tear_next_write_after.reset();
  } else if (chance(faults.torn_write)) {
    bytes = bytes.first(some_sectors(bytes.size()));
  }
  image.write(offset, bytes, prng_);
  return {};
}

uint64_t SimDisk::some_sectors(uint64_t bytes) {
  return prng_.below(bytes / kTearBytes) * kTearBytes;
}

void SimDisk::land_partly(const Operation& write, Crash how) {
  SimImage& image = *file_of(write).image;
  const std::span<const std::byte> bytes = write.transfer.memory;
  if (how == Crash::kProcess) {
    const uint64_t sectors = prng_.below(bytes.size() / kTearBytes + 1);
    return image.write(write.transfer.offset, bytes.first(sectors * kTearBytes), prng_);
  }
  const double share = prng_.uniform();
  for (uint64_t at = 0; at < bytes.size(); at += kTearBytes) {
    if (!chance(share)) continue;
    image.write(write.transfer.offset + at, bytes.subspan(at, kTearBytes), prng_);
  }
}

void SimDisk::crash(Crash how) {
  CHECK(!crashed_);
  for (InFlight& cut : in_flight_) {
    if (cut.operation->kind == Operation::Kind::kWrite) land_partly(*cut.operation, how);
  }
  if (how == Crash::kPower) {
    const uint64_t kind = prng_.below(4);  // nothing survives, all, or a part
    const double survive = kind == 0 ? 0 : kind == 1 ? 1 : prng_.uniform();
    for (const auto& [path, image] : files_.all()) image->cut_power(survive, prng_);
  }
  std::erase_if(files_.locks, [this](const auto& lock) { return lock.second == pid_; });
  crashed_ = true;
  for (InFlight& cut : std::exchange(in_flight_, {})) {
    operations_.end_later(std::move(cut.operation), off());
  }
  for (auto* queue : {&reads_, &others_}) {
    for (auto& cut : *queue) operations_.end_later(std::move(cut), off());
    queue->clear();
  }
}

void SimDiskParker::park(std::optional<std::chrono::nanoseconds> timeout) {
  before_park();
  if (disk != nullptr) {
    if (disk->run_one()) return;
    if (const auto due = disk->next_due()) {
      const auto until = std::max(*due - clock_.now(), Clock::Duration::zero());
      timeout = timeout ? std::min(*timeout, until) : until;
    }
  }
  const bool something_will_happen = timeout.has_value();
  CHECK(something_will_happen);
  clock_.advance(*timeout);
}

}  // namespace spillway::sim
