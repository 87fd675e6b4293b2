#include "server/cli/measure_disk.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

#include "io/make_ring.h"
#include "runtime/check.h"
#include "runtime/engine_loop.h"
#include "runtime/prng.h"
#include "runtime/scope.h"

namespace spillway::server {
namespace {

constexpr uint64_t kFileBytesMax = uint64_t{256} << 20;
constexpr uint64_t kFileBytesMin = uint64_t{16} << 20;
constexpr uint64_t kRegisteredBytesMax = uint64_t{1} << 30;  // of one piece
constexpr uint64_t kInFlightBytes = uint64_t{8} << 20;       // as the tiers load
constexpr auto kDeadline = std::chrono::seconds(10);         // of one transfer

// What the lanes of one measurement share.
struct Job {
  bool write = false;
  bool in_order = false;  // fills the file, front to back; else at random
  uint64_t bytes = 0;     // of a transfer
  uint64_t places = 0;
  uint64_t least = 0;  // transfers, however long they take
  Clock::TimePoint until;

  Prng prng{1};
  uint64_t begun = 0;
  std::vector<double> times{};
  std::optional<Error> error{};
};

// One ring with its loop and the file.
class DiskBench {
 public:
  explicit DiskBench(io::IoUring use) : chosen_(io::make_parker(use)) {}
  ~DiskBench() { loop_.run(ring_->drain()); }  // of what was given up at its deadline
  DiskBench(const DiskBench&) = delete;
  DiskBench& operator=(const DiskBench&) = delete;

  Result<> open(const std::string& path, bool create) {
    auto opened = ring_->open(path, {.create = create});
    if (!opened) return opened.error();
    file_ = std::move(*opened);
    return {};
  }
  // Runs the job in `depth` lanes over `memory`. Returns bytes per second.
  Result<double> run(Job& job, uint32_t depth, std::span<std::byte> memory) {
    CHECK(memory.size() >= depth * job.bytes);
    const Clock::TimePoint begin = clock_.now();
    loop_.run(lanes(&job, depth, memory));
    if (job.error) return *job.error;
    const double seconds = std::chrono::duration<double>(clock_.now() - begin).count();
    return static_cast<double>(job.times.size() * job.bytes) / seconds;
  }

  bool io_uring() const { return chosen_.uring != nullptr; }
  const std::string& why_not_io_uring() const { return chosen_.why_not_io_uring; }
  io::Ring& ring() { return *ring_; }
  io::File& file() { return *file_; }
  Clock::TimePoint after(double seconds) const {
    return clock_.now() +
           std::chrono::duration_cast<Clock::Duration>(std::chrono::duration<double>(seconds));
  }

 private:
  Task<> lanes(Job* job, uint32_t depth, std::span<std::byte> memory) {
    Scope scope(loop_.executor());
    for (uint32_t i = 0; i < depth; ++i) {
      scope.spawn(lane(job, memory.subspan(i * job->bytes, job->bytes)));
    }
    co_await scope.join();
    if (job->write && !job->error) {
      const Result<> synced = co_await io::sync_file(*ring_, file_);
      if (!synced) job->error = synced.error();
    }
  }

  Task<> lane(Job* job, std::span<std::byte> memory) {
    while (!job->error && (job->begun < job->least || clock_.now() < job->until)) {
      if (job->in_order && job->begun == job->places) break;
      const uint64_t place = job->in_order ? job->begun : job->prng.below(job->places);
      ++job->begun;
      io::Transfer transfer;
      transfer.file = file_;
      transfer.offset = place * job->bytes;
      transfer.memory = memory;
      transfer.deadline = clock_.now() + kDeadline;
      const Clock::TimePoint began = clock_.now();
      Result<> done;
      if (job->write) {
        done = co_await ring_->write(std::move(transfer), never_);
      } else {
        done = co_await ring_->read(std::move(transfer), never_);
      }
      if (!done) {
        job->error = done.error();
      } else {
        job->times.push_back(std::chrono::duration<double>(clock_.now() - began).count());
      }
    }
  }

  RealClock clock_;
  io::ChosenParker chosen_;
  EngineLoop loop_{clock_, *chosen_.parker};
  std::unique_ptr<io::Ring> ring_ = io::make_ring(chosen_, loop_);
  std::shared_ptr<io::File> file_;  // closed before its ring goes
  StopFlag never_;
};

// A file's name, removed when this goes.
class TemporaryName {
 public:
  explicit TemporaryName(const std::string& directory)
      : path_(directory + "/.spillway-doctor-" + std::to_string(getpid())) {}
  ~TemporaryName() { unlink(path_.c_str()); }
  TemporaryName(const TemporaryName&) = delete;
  TemporaryName& operator=(const TemporaryName&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

// Seconds of one page size on one ring.
Result<DiskFigures> measure_pages(DiskBench& bench, uint64_t page_bytes, uint64_t filled_bytes,
                                  std::span<std::byte> memory, double seconds) {
  DiskFigures figures;
  figures.io_uring = bench.io_uring();
  figures.page_bytes = page_bytes;
  const uint64_t wanted = std::clamp<uint64_t>(kInFlightBytes / page_bytes, 2, 32);
  figures.depth = static_cast<uint32_t>(std::min(wanted, memory.size() / page_bytes));
  const auto job = [&](bool write, uint64_t least, double share) {
    return Job{.write = write,
               .bytes = page_bytes,
               .places = filled_bytes / page_bytes,
               .least = least,
               .until = bench.after(seconds * share)};
  };
  Job alone = job(false, 3, 0.25);
  if (const auto done = bench.run(alone, 1, memory); !done) return done.error();
  const auto middle = alone.times.begin() + static_cast<ptrdiff_t>(alone.times.size() / 2);
  std::nth_element(alone.times.begin(), middle, alone.times.end());
  figures.page_s = *middle;
  Job reads = job(false, figures.depth, 0.4);
  const auto read = bench.run(reads, figures.depth, memory);
  if (!read) return read.error();
  figures.read_bytes_per_s = *read;
  Job writes = job(true, figures.depth, 0.35);
  const auto written = bench.run(writes, figures.depth, memory);
  if (!written) return written.error();
  figures.write_bytes_per_s = *written;
  return figures;
}

uint64_t free_bytes(const std::string& directory) {
  struct statvfs disk{};
  if (statvfs(directory.c_str(), &disk) != 0) return 0;
  return uint64_t{disk.f_bavail} * disk.f_frsize;
}

Error cannot(const std::string& directory, const Error& why) {
  return {why.code, "cannot measure in " + directory + ": " + why.message +
                        "; name a directory with room that you may write to with --kv-nvme-dir"};
}

// A file of `bytes`, open in all benches. It has no name any more when this returns.
Result<> make_file(uint64_t bytes, const std::vector<std::unique_ptr<DiskBench>>& benches,
                   const std::string& directory) {
  const TemporaryName name(directory);
  for (const auto& bench : benches) {
    const bool first = bench == benches.front();
    if (const auto opened = bench->open(name.path(), first); !opened) return opened.error();
    if (!first) continue;
    if (const auto made = bench->file().allocate(bytes); !made) return made.error();
  }
  return {};
}

// Writes as much of the file as its share of the time allows, at least `least_bytes`: what was only
// reserved is not read from the disk. Returns how much that is.
Result<uint64_t> fill(uint64_t bytes, uint64_t least_bytes, DiskBench& bench,
                      const MeasureDiskOptions& options) {
  constexpr uint64_t kPiece = uint64_t{1} << 20;
  Job job{.write = true,
          .in_order = true,
          .bytes = kPiece,
          .places = bytes / kPiece,
          .least = (least_bytes + kPiece - 1) / kPiece,
          .until = bench.after(options.seconds * 0.25)};
  const uint64_t depth = std::min<uint64_t>(8, options.memory.size() / kPiece);
  const auto done = bench.run(job, static_cast<uint32_t>(depth), options.memory);
  if (!done) return done.error();
  return job.times.size() * kPiece;
}

}  // namespace

Result<> check_directory(const std::string& directory) {
  std::error_code ec;
  if (!std::filesystem::is_directory(directory, ec)) {
    return Error{ErrorCode::kNotFound, "there is no directory " + directory +
                                           ": make it, or name another with --kv-nvme-dir"};
  }
  const TemporaryName name(directory);
  const int fd = ::open(name.path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    return cannot(directory, {ErrorCode::kIo,
                              "making a file there failed: " + std::string(std::strerror(errno))});
  }
  close(fd);
  return {};
}

Result<DiskMeasurement> measure_disk(const MeasureDiskOptions& options) {
  CHECK(!options.page_bytes.empty());
  const uint64_t largest = *std::max_element(options.page_bytes.begin(), options.page_bytes.end());
  CHECK(options.memory.size() >= 2 * largest);
  DiskMeasurement out;
  out.directory = options.directory;
  out.free_bytes = free_bytes(options.directory);
  const uint64_t least = std::max(kFileBytesMin, 4 * largest);
  const uint64_t bytes = std::max(least, std::min(kFileBytesMax, out.free_bytes / 4)) >> 20 << 20;

  std::vector<std::unique_ptr<DiskBench>> benches;
  benches.push_back(std::make_unique<DiskBench>(io::IoUring::kWhereItWorks));
  out.why_not_io_uring = benches.front()->why_not_io_uring();
  if (benches.front()->io_uring()) {
    benches.push_back(std::make_unique<DiskBench>(io::IoUring::kNever));
    const auto registered = benches.front()->ring().register_memory(
        options.memory.first(std::min(options.memory.size(), kRegisteredBytesMax)));
    if (!registered) out.why_not_registered = registered.error().message;
  }
  // Random, for some disks store zeros without storing them.
  for (size_t at = 0; at < options.memory.size(); at += sizeof(uint64_t)) {
    const uint64_t bits = random_at(static_cast<uint64_t>(getpid()), 0, at);
    std::memcpy(options.memory.data() + at, &bits, sizeof bits);
  }

  if (const auto made = make_file(bytes, benches, options.directory); !made) {
    return cannot(options.directory, made.error());
  }
  const auto filled = fill(bytes, 4 * largest, *benches.front(), options);
  if (!filled) return cannot(options.directory, filled.error());
  out.direct = benches.front()->file().direct();
  const double share =
      options.seconds * 0.75 / static_cast<double>(benches.size() * options.page_bytes.size());
  for (const auto& bench : benches) {
    for (const uint64_t page_bytes : options.page_bytes) {
      auto figures = measure_pages(*bench, page_bytes, *filled, options.memory, share);
      if (!figures) return cannot(options.directory, figures.error());
      out.figures.push_back(*figures);
    }
  }
  return out;
}

}  // namespace spillway::server
