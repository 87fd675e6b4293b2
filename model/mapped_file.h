// A file mapped read-only. If it is truncated while mapped (case M1), touching the lost part ends
// the process with exit code 74 and a line on stderr that names the file, not silently by SIGBUS.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "runtime/result.h"

namespace spillway::model {

class MappedFile {
 public:
  // Maps the whole file. Any thread. The error names the path and the cause.
  static Result<MappedFile> open(const std::string& path);

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  MappedFile(std::shared_ptr<void> mapping, std::span<const std::byte> bytes)
      : mapping_(std::move(mapping)), bytes_(bytes) {}

  std::shared_ptr<void> mapping_;  // unmaps and unregisters with the last copy
  std::span<const std::byte> bytes_;
};

}  // namespace spillway::model
