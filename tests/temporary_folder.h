// A folder of a test's own, gone with the object. In the current directory, for there is a real
// file system, where /tmp may be memory.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "runtime/check.h"

namespace spillway {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    path_ = std::filesystem::current_path() / "test-XXXXXX";
    CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
};

}  // namespace spillway
