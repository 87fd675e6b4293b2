// What the block store costs on top of its ring: pages put and read back, against plain transfers
// of the same size and depth in the same file system, with the engine thread's processor time.
//
//   store_bench DIR [PAGE_KIB [PAGES [DEPTH [WORKERS]]]]
//
// DIR should be on the disk that matters; it takes three times PAGES x PAGE_KIB there. WORKERS:
// that take the checksums; without, the engine's thread does.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/block_store.h"
#include "io/make_ring.h"
#include "io/sector_buffer.h"
#include "runtime/check.h"
#include "runtime/log.h"
#include "runtime/prng.h"
#include "runtime/scope.h"
#include "runtime/worker_pool.h"

namespace spillway::io {
namespace {

double thread_cpu_s() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Bench {
  explicit Bench(std::string in) : directory(std::move(in)) {}

  std::string directory;
  uint32_t page_bytes = 360 << 10;
  uint32_t pages = 1000;
  uint32_t depth = 16;
  RealClock clock;
  ChosenParker chosen = make_parker();
  EngineLoop loop{clock, *chosen.parker};
  std::unique_ptr<Ring> ring = make_ring(chosen, loop);
  StopFlag stop;
  std::unique_ptr<WorkerPool> pool;
  std::unique_ptr<BlockStore> store;
  std::vector<StoredPage> stored;
  std::shared_ptr<File> plain;
  std::vector<SectorBuffer> buffers;  // one per worker

  Task<> run();
  Task<> measure(const char* what, Task<> (Bench::*one)(uint32_t page, uint32_t worker));
  Task<> worker(uint32_t index, Task<> (Bench::*one)(uint32_t page, uint32_t worker));
  Task<> put(uint32_t page, uint32_t worker);
  Task<> get(uint32_t page, uint32_t worker);
  Task<> plain_write(uint32_t page, uint32_t worker);
  Task<> plain_read(uint32_t page, uint32_t worker);
  Transfer transfer(uint32_t page, uint32_t worker) const;
};

Task<> Bench::worker(uint32_t index, Task<> (Bench::*one)(uint32_t page, uint32_t worker)) {
  for (uint32_t page = index; page < pages; page += depth) co_await (this->*one)(page, index);
}

Task<> Bench::measure(const char* what, Task<> (Bench::*one)(uint32_t page, uint32_t worker)) {
  const auto begun = std::chrono::steady_clock::now();
  const double cpu_begun = thread_cpu_s();
  Scope workers(loop.executor());
  for (uint32_t i = 0; i < depth; ++i) workers.spawn(worker(i, one));
  co_await workers.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  const double cpu = thread_cpu_s() - cpu_begun;
  std::printf("%-12s %8.0f MB/s  %7.1f us of the engine's thread a page\n", what,
              static_cast<double>(page_bytes) * pages / took.count() / 1e6, cpu / pages * 1e6);
}

Task<> Bench::put(uint32_t page, uint32_t worker) {
  const std::vector<int32_t> tokens(16, static_cast<int32_t>(page));
  PageName name;
  name.space = "bench";
  name.key = {page, 1};
  name.tokens = tokens;
  PagePayload payload;
  payload.bytes = buffers[worker].bytes();
  payload.encoded_bytes = page_bytes;
  const auto done = co_await store->put(name, payload, buffers[worker].owner(), stop);
  CHECK(done.has_value());
  stored[page] = *done;
}

Task<> Bench::get(uint32_t page, uint32_t worker) {
  const auto done = co_await store->get(stored[page].slot, stored[page].generation,
                                        buffers[worker].bytes(), buffers[worker].owner(), stop);
  CHECK(done.has_value());
}

Transfer Bench::transfer(uint32_t page, uint32_t worker) const {
  Transfer made;
  made.file = plain;
  made.offset = uint64_t{page} * page_bytes;
  made.memory = buffers[worker].bytes();
  made.owner = buffers[worker].owner();
  return made;
}

Task<> Bench::plain_write(uint32_t page, uint32_t worker) {
  const auto done = co_await ring->write(transfer(page, worker), stop);
  CHECK(done.has_value());
}

Task<> Bench::plain_read(uint32_t page, uint32_t worker) {
  const auto done = co_await ring->read(transfer(page, worker), stop);
  CHECK(done.has_value());
}

Task<> Bench::run() {
  for (uint32_t i = 0; i < depth; ++i) {
    buffers.emplace_back(page_bytes);
    Prng random(i);
    for (std::byte& byte : buffers.back().bytes()) byte = static_cast<std::byte>(random.next());
  }
  stored.resize(pages);
  BlockStoreOptions options;
  options.directory = directory;
  options.bytes = uint64_t{pages} * page_bytes * 5 / 4 + (64 << 20);
  options.slot_bytes = {page_bytes};
  if (pool != nullptr) {
    options.run_work = [this](std::function<void()> work) { return pool->run(std::move(work)); };
  }
  auto opened = co_await BlockStore::open(options, loop, *ring);
  CHECK(opened.has_value());
  store = std::move(*opened);
  auto file = ring->open(directory + "/plain", {.create = true, .lock = false});
  CHECK(file.has_value());
  plain = *file;
  const auto allocated = plain->allocate(uint64_t{pages} * page_bytes);
  CHECK(allocated.has_value());
  std::printf("%u pages of %u KiB, %u at once, %s\n", pages, page_bytes >> 10, depth,
              ring->description().c_str());
  // Twice: the first writes of preallocated blocks cost the file system more.
  for (int round = 0; round < 2; ++round) {
    co_await measure("plain write", &Bench::plain_write);
    co_await measure("put", &Bench::put);
    co_await measure("plain read", &Bench::plain_read);
    co_await measure("get", &Bench::get);
    for (const StoredPage& page : stored) store->erase(page.slot, page.generation);
  }
  co_await store->close();
  store.reset();
  plain.reset();
}

}  // namespace
}  // namespace spillway::io

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: store_bench DIR [PAGE_KIB [PAGES [DEPTH [WORKERS]]]]\n");
    return 2;
  }
  spillway::configure_log("warn");
  const auto number = [&](int index, uint32_t otherwise) {
    return argc > index ? static_cast<uint32_t>(std::atoi(argv[index])) : otherwise;
  };
  const std::string directory = std::string(argv[1]) + "/store_bench";
  std::filesystem::create_directories(directory);
  {
    spillway::io::Bench bench(directory);
    bench.page_bytes = number(2, 360) << 10;
    bench.pages = number(3, 1000);
    bench.depth = number(4, 16);
    if (const uint32_t workers = number(5, 0); workers > 0) {
      bench.pool =
          std::make_unique<spillway::WorkerPool>(spillway::WorkerPool::Options{.threads = workers});
    }
    bench.loop.run(bench.run());
  }
  std::filesystem::remove_all(directory);
  return 0;
}
