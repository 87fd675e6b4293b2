// Files of the real file system, as the rings open them: O_DIRECT where the file system takes it.
//
// All calls block. Thread: the engine's; fd() may be read by others while the file lives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "io/ring.h"

namespace spillway::io {

class DiskFile final : public File {
 public:
  // As Ring::open().
  static Result<std::shared_ptr<DiskFile>> open(const std::string& path, OpenOptions options);
  ~DiskFile() override;
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  uint64_t size() const override;
  Result<> allocate(uint64_t bytes) override;
  bool direct() const override { return direct_; }

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }

  static constexpr uint32_t kNotRegistered = UINT32_MAX;
  uint32_t ring_index = kNotRegistered;        // in the ring's table of files
  std::function<void(DiskFile&)> when_closed;  // called before the file is closed; may be null

 private:
  DiskFile(int fd, std::string path, bool direct)
      : fd_(fd), path_(std::move(path)), direct_(direct) {}
  Result<> lock();
  int reserve(int64_t bytes);  // returns an errno, or 0

  const int fd_;
  const std::string path_;
  const bool direct_;
  bool locked_ = false;
};

// As Ring::rename(); the new name survives a crash.
Result<> rename_file(const std::string& from, const std::string& to);

}  // namespace spillway::io
