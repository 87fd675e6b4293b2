#include "bench/gpu/disk_read.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace spillway::bench {
namespace {

constexpr size_t kPiece = 1 << 20;
constexpr uint32_t kThreads = 8;

using Buffer = std::unique_ptr<char, decltype(&std::free)>;
Buffer make_buffer() { return {static_cast<char*>(std::aligned_alloc(4096, kPiece)), std::free}; }

class File {
 public:
  File(std::string path, int flags)
      : path_(std::move(path)), fd_(open(path_.c_str(), flags, 0600)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }
  Error error(const char* what) const {
    return {ErrorCode::kIo,
            std::string("cannot ") + what + " " + path_ + ": " + std::strerror(errno)};
  }

 private:
  const std::string path_;
  const int fd_;
};

Result<> write_file(const std::string& path, size_t pieces) {
  const File file(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC);
  if (file.fd() < 0) return file.error("make");
  const Buffer buffer = make_buffer();
  std::mt19937_64 random(pieces);  // so that no disk makes it smaller
  for (size_t i = 0; i < kPiece; i += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(buffer.get() + i, &word, sizeof word);
  }
  for (size_t i = 0; i < pieces; ++i) {
    if (write(file.fd(), buffer.get(), kPiece) != static_cast<ssize_t>(kPiece)) {
      return file.error("write");
    }
  }
  if (fsync(file.fd()) != 0) return file.error("flush");
  return Result<>();
}

Result<double> read_file(const std::string& path, size_t pieces) {
  const File direct(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
  const File cached(path, O_RDONLY | O_CLOEXEC);
  if (cached.fd() < 0) return cached.error("open");
  const int fd = direct.fd() >= 0 ? direct.fd() : cached.fd();
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const Buffer buffer = make_buffer();
      for (size_t i = next++; i < pieces; i = next++) {
        const auto got = pread(fd, buffer.get(), kPiece, static_cast<off_t>(i * kPiece));
        if (got != static_cast<ssize_t>(kPiece)) failed = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failed) return Error{ErrorCode::kIo, "cannot read " + path};
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Result<double> disk_read_seconds(const std::string& folder, size_t bytes) {
  const std::string path = folder + "/gpu-bench-read";
  const size_t pieces = std::max<size_t>((bytes + kPiece - 1) / kPiece, 1);
  const auto written = write_file(path, pieces);
  Result<double> seconds = 0.0;
  if (written) seconds = read_file(path, pieces);
  unlink(path.c_str());
  if (!written) return written.error();
  if (!seconds) return seconds;
  return *seconds * static_cast<double>(bytes) / static_cast<double>(pieces * kPiece);
}

}  // namespace spillway::bench
