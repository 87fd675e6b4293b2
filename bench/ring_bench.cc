// Reads of KV pages from a real disk: GB/s and processor time per read of each ring, side by side
// in one process, against a default io_uring (nothing registered, one call per read, ordinary
// memory) as the yardstick. `default+huge` is the same ring on our memory: what of the difference
// the huge pages make.
//
//   ring_bench FILE [--rings uring,threads,default,default+huge] [--bytes 256K,1M,4M] [--depth
//   1,8,32]
//              [--seconds 1] [--rounds 3] [--file-bytes 1G] [--plain]
//
// FILE is made, and filled, where it is not there. --plain registers no memory, --small has no huge
// pages. Prints one line per case: ring bytes depth GB/s microseconds-of-CPU-per-read (medians of
// the rounds), then what the ring says of itself.
//
// Sketch: a read costs the processor two system calls shared by what a turn submits and reaps, the
// block layer's bios (256 KiB each: 4 a MiB), and without registered memory the pinning of each
// 4 KiB page (about 50 ns: 13 us a MiB). In huge pages, which the pools ask for
// (kernels/cpu_device.cc), pinning is nearly free and a bio's pieces are few: the larger half.
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "io/disk_file.h"
#include "io/make_ring.h"
#include "io/uring_parker.h"
#include "runtime/prng.h"
#include "runtime/scope.h"

namespace spillway::io {
namespace {

struct Settings {
  std::string path;
  std::vector<std::string> rings = {"uring", "threads", "default"};
  std::vector<uint64_t> bytes = {256 << 10, 1 << 20, 4 << 20};
  std::vector<uint64_t> depths = {1, 8, 32};
  double seconds = 1;
  uint32_t rounds = 3;
  uint64_t file_bytes = uint64_t{1} << 30;
  bool register_memory = true;
  bool huge_pages = true;
};

struct Case {
  uint64_t bytes;
  uint32_t depth;
};

struct Figures {
  double gb_per_s = 0;
  double cpu_us = 0;  // per read
};

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

// The memory of all reads in flight: one slab, as a page pool is.
class Slab {
 public:
  Slab(uint64_t wanted, bool huge_pages)  // whole huge pages, as a pool is many of them
      : bytes_((wanted + kHugePage - 1) / kHugePage * kHugePage), mapped_(bytes_ + kHugePage) {
    base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) {
      std::perror("mmap");
      std::exit(1);
    }
    const auto address = reinterpret_cast<uintptr_t>(base_);
    data_ = static_cast<std::byte*>(base_) + (kHugePage - address % kHugePage) % kHugePage;
    if (huge_pages) madvise(data_, bytes_, MADV_HUGEPAGE);
    std::memset(data_, 1, bytes_);
  }
  ~Slab() { munmap(base_, mapped_); }
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  std::span<std::byte> page(uint32_t index, uint64_t bytes) const {
    return {data_ + index * bytes, bytes};
  }
  std::span<std::byte> all() const { return {data_, bytes_}; }

 private:
  static constexpr uint64_t kHugePage = 2 << 20;
  const uint64_t bytes_, mapped_;
  void* base_;
  std::byte* data_;
};

class Stopwatch {
 public:
  explicit Stopwatch(double seconds) : end_(now() + seconds) {}
  bool over() const { return now() >= end_; }
  void count() { ++reads_; }
  Figures figures(uint64_t bytes) const {
    const double reads = static_cast<double>(reads_);
    return {reads * static_cast<double>(bytes) / (now() - begin_) * 1e-9,
            (cpu_seconds() - cpu_) / reads * 1e6};
  }

 private:
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  const double begin_ = now();
  const double cpu_ = cpu_seconds();
  const double end_;
  uint64_t reads_ = 0;
};

void fail(const std::string& why) {
  std::fprintf(stderr, "ring_bench: %s\n", why.c_str());
  std::exit(1);
}

// One of our rings, with its loop.
struct Ours {
  explicit Ours(IoUring use) : chosen(make_parker(use)) {}
  RealClock clock;
  ChosenParker chosen;
  EngineLoop loop{clock, *chosen.parker};
  std::unique_ptr<Ring> ring = make_ring(chosen, loop);
};

Task<> read_pages(Ring* ring, Transfer transfer, uint64_t places, uint32_t lane, Stopwatch* watch) {
  StopFlag stop;
  Prng prng(lane);
  const uint64_t bytes = transfer.memory.size();
  while (!watch->over()) {
    transfer.offset = prng.below(places) * bytes;
    const Result<> result = co_await ring->read(transfer, stop);
    if (!result) fail(result.error().message);
    watch->count();
  }
}

Figures measure_ours(Ours& ours, const std::shared_ptr<File>& file, const Slab& slab,
                     const Case& of, const Settings& settings) {
  Stopwatch watch(settings.seconds);
  Scope scope(ours.loop.executor());
  for (uint32_t lane = 0; lane < of.depth; ++lane) {
    Transfer transfer;
    transfer.file = file;
    transfer.memory = slab.page(lane, of.bytes);
    scope.spawn(read_pages(ours.ring.get(), std::move(transfer), settings.file_bytes / of.bytes,
                           lane, &watch));
  }
  ours.loop.run(scope.join());
  return watch.figures(of.bytes);
}

Figures measure_default(const std::shared_ptr<File>& file, const Slab& slab, const Case& of,
                        const Settings& settings) {
  const int fd = static_cast<DiskFile&>(*file).fd();
  io_uring ring{};
  if (io_uring_queue_init(std::max(of.depth, 2u), &ring, 0) < 0) fail("no default io_uring");
  std::vector<Prng> lanes;
  for (uint32_t lane = 0; lane < of.depth; ++lane) lanes.emplace_back(lane);
  const auto submit = [&](uint32_t lane) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring);
    const uint64_t offset = lanes[lane].below(settings.file_bytes / of.bytes) * of.bytes;
    const auto memory = slab.page(lane, of.bytes);
    io_uring_prep_read(entry, fd, memory.data(), static_cast<unsigned>(of.bytes), offset);
    io_uring_sqe_set_data64(entry, lane);
    io_uring_submit(&ring);
  };
  Stopwatch watch(settings.seconds);
  for (uint32_t lane = 0; lane < of.depth; ++lane) submit(lane);
  for (uint32_t running = of.depth; running > 0;) {
    io_uring_cqe* completion = nullptr;
    if (io_uring_wait_cqe(&ring, &completion) < 0) continue;
    const auto lane = static_cast<uint32_t>(io_uring_cqe_get_data64(completion));
    if (completion->res != static_cast<int>(of.bytes)) fail("a short read");
    io_uring_cqe_seen(&ring, completion);
    watch.count();
    if (watch.over()) {
      --running;
    } else {
      submit(lane);
    }
  }
  const Figures figures = watch.figures(of.bytes);
  io_uring_queue_exit(&ring);
  return figures;
}

// With bytes on the disk: what was only reserved is not read from it.
void fill(Ours& ours, const Settings& settings) {
  auto file = ours.ring->open(settings.path, {.create = true, .lock = false});
  if (!file) fail(file.error().message);
  if ((*file)->size() >= settings.file_bytes) return;
  if (const Result<> made = (*file)->allocate(settings.file_bytes); !made) {
    fail(made.error().message);
  }
  const Slab slab(8 << 20, false);
  const auto write_all = [](Ring* ring, std::shared_ptr<File> to, std::span<std::byte> from,
                            uint64_t bytes) -> Task<> {
    StopFlag stop;
    for (uint64_t offset = 0; offset < bytes; offset += from.size()) {
      Transfer transfer;
      transfer.file = to;
      transfer.offset = offset;
      transfer.memory = from;
      const Result<> written = co_await ring->write(std::move(transfer), stop);
      if (!written) fail(written.error().message);
    }
    const Result<> synced = co_await io::sync_file(*ring, to);
    if (!synced) fail(synced.error().message);
  };
  ours.loop.run(write_all(ours.ring.get(), *file, slab.all(), settings.file_bytes));
}

Figures median(std::vector<Figures> rounds) {
  const auto by = [&](double Figures::* of) {
    std::sort(rounds.begin(), rounds.end(),
              [of](const Figures& a, const Figures& b) { return a.*of < b.*of; });
    return rounds[rounds.size() / 2].*of;
  };
  return {by(&Figures::gb_per_s), by(&Figures::cpu_us)};
}

void run_case(const Settings& settings, const Case& of) {
  const Slab slab(of.bytes * of.depth, settings.huge_pages);
  const Slab ordinary(of.bytes * of.depth, false);
  Ours uring(IoUring::kWhereItWorks);
  Ours threads(IoUring::kNever);
  const auto open = [&](Ours& ours) { return ours.ring->open(settings.path, {}).value(); };
  auto uring_file = open(uring);
  auto thread_file = open(threads);
  if (settings.register_memory) (void)uring.ring->register_memory(slab.all());
  std::vector<std::vector<Figures>> figures(settings.rings.size());
  for (uint32_t round = 0; round < settings.rounds; ++round) {
    for (size_t i = 0; i < settings.rings.size(); ++i) {
      const std::string& name = settings.rings[i];
      figures[i].push_back(
          name == "uring" ? measure_ours(uring, uring_file, slab, of, settings)
          : name == "threads"
              ? measure_ours(threads, thread_file, slab, of, settings)
              : measure_default(uring_file, name == "default" ? ordinary : slab, of, settings));
    }
  }
  for (size_t i = 0; i < settings.rings.size(); ++i) {
    const Figures middle = median(figures[i]);
    const std::string& name = settings.rings[i];
    std::printf("%-12s %8llu %3u %7.3f %8.1f  %s\n", name.c_str(),
                static_cast<unsigned long long>(of.bytes), of.depth, middle.gb_per_s, middle.cpu_us,
                name == "uring"     ? uring.ring->description().c_str()
                : name == "threads" ? threads.ring->description().c_str()
                                    : "");
  }
  std::fflush(stdout);
}

uint64_t parse_bytes(const std::string& text) {
  char* end = nullptr;
  const uint64_t number = std::strtoull(text.c_str(), &end, 10);
  const char unit = *end;
  return unit == 'K'   ? number << 10
         : unit == 'M' ? number << 20
         : unit == 'G' ? number << 30
                       : number;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--plain") {
      settings.register_memory = false;
      continue;
    }
    if (name == "--small") {
      settings.huge_pages = false;
      continue;
    }
    if (name.rfind("--", 0) != 0) {
      settings.path = name;
      continue;
    }
    if (i + 1 == argc) fail(name + " needs a value");
    const std::string value = argv[++i];
    const auto list = [&] {
      std::vector<uint64_t> numbers;
      for (const std::string& part : split(value)) numbers.push_back(parse_bytes(part));
      return numbers;
    };
    if (name == "--rings") {
      settings.rings = split(value);
    } else if (name == "--bytes") {
      settings.bytes = list();
    } else if (name == "--depth") {
      settings.depths = list();
    } else if (name == "--seconds") {
      settings.seconds = std::atof(value.c_str());
    } else if (name == "--rounds") {
      settings.rounds = static_cast<uint32_t>(std::atoi(value.c_str()));
    } else if (name == "--file-bytes") {
      settings.file_bytes = parse_bytes(value);
    } else {
      fail("no option " + name);
    }
  }
  if (settings.path.empty()) fail("needs the path of a file on the disk to measure");
  return settings;
}

}  // namespace
}  // namespace spillway::io

int main(int argc, char** argv) {
  using namespace spillway::io;
  const Settings settings = parse(argc, argv);
  {
    Ours filler(IoUring::kWhereItWorks);
    fill(filler, settings);
  }
  std::printf("%-12s %8s %3s %7s %8s\n", "ring", "bytes", "qd", "GB/s", "cpu us");
  for (const uint64_t bytes : settings.bytes) {
    for (const uint64_t depth : settings.depths) {
      run_case(settings, {bytes, static_cast<uint32_t>(depth)});
    }
  }
}
