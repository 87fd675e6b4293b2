#include "io/disk_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

#include "runtime/check.h"

namespace spillway::io {
namespace {

Error failed(const char* doing, const std::string& path, int error_number) {
  ErrorCode code = ErrorCode::kIo;
  if (error_number == ENOENT) code = ErrorCode::kNotFound;
  if (error_number == ENOSPC || error_number == EDQUOT) code = ErrorCode::kResourceExhausted;
  return {code, std::string(doing) + " " + path + " failed: " + std::strerror(error_number)};
}

// A new or renamed entry is durable when its directory is.
Result<> flush_directory_of(const std::string& path) {
  std::string directory = std::filesystem::path(path).parent_path().string();
  if (directory.empty()) directory = ".";
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return failed("opening", directory, errno);
  const int flushed = fsync(fd);
  const int error_number = errno;
  close(fd);
  // EINVAL: this file system has nothing to flush of a directory.
  if (flushed < 0 && error_number != EINVAL) return failed("flushing", directory, error_number);
  return {};
}

// tmpfs takes O_DIRECT and does not mean it.
bool in_memory_only(int fd) {
  struct statfs of{};
  return fstatfs(fd, &of) == 0 && of.f_type == TMPFS_MAGIC;
}

// Some file systems take the flag and refuse the transfers, or want a coarser alignment than ours.
bool takes_direct_reads(int fd) {
  void* memory = nullptr;
  const int allocated = posix_memalign(&memory, kSectorBytes, kSectorBytes);
  CHECK(allocated == 0);
  const ssize_t got = pread(fd, memory, kSectorBytes, 0);
  const bool refused = got < 0 && errno == EINVAL;
  std::free(memory);
  return !refused;
}

// The process that has the record lock; 0: none, or one that this container cannot see.
pid_t lock_owner(int fd) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return 0;
  return lock.l_pid;
}

}  // namespace

Result<std::shared_ptr<DiskFile>> DiskFile::open(const std::string& path, OpenOptions options) {
  const bool is_new = options.create && access(path.c_str(), F_OK) != 0;
  const int flags = O_RDWR | O_CLOEXEC | (options.create ? O_CREAT : 0);
  bool direct = true;
  int fd = ::open(path.c_str(), flags | O_DIRECT, 0600);
  if (fd >= 0 && (in_memory_only(fd) || !takes_direct_reads(fd))) {
    close(fd);
    fd = -1;
    errno = EINVAL;
  }
  if (fd < 0 && errno == EINVAL) {
    direct = false;
    fd = ::open(path.c_str(), flags, 0600);
  }
  if (fd < 0) return failed("opening", path, errno);
  std::shared_ptr<DiskFile> file(new DiskFile(fd, path, direct));
  if (options.lock) {
    if (const Result<> locked = file->lock(); !locked) return locked.error();
  }
  if (is_new) {
    if (const Result<> flushed = flush_directory_of(path); !flushed) return flushed.error();
  }
  return file;
}

// flock() keeps others out, other opens of this process too; the record lock beside it tells them
// our pid. An owner that was killed takes a moment to die, and the kernel may hold its file for the
// dying ring a little longer: so a lock that is taken is tried again for a second.
Result<> DiskFile::lock() {
  constexpr auto kPause = std::chrono::milliseconds(5);
  constexpr int kTries = 200;
  for (int i = 0; flock(fd_, LOCK_EX | LOCK_NB) != 0; ++i) {
    if (errno != EWOULDBLOCK && errno != EINTR) return failed("locking", path_, errno);
    if (i == kTries) {
      const pid_t owner = lock_owner(fd_);
      return Error{ErrorCode::kUnavailable,
                   path_ + " is in use by " +
                       (owner > 0 ? "process " + std::to_string(owner)
                                  : "this process, or by one in another container")};
    }
    std::this_thread::sleep_for(kPause);
  }
  locked_ = true;
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  (void)fcntl(fd_, F_SETLK, &lock);  // names us only
  return {};
}

DiskFile::~DiskFile() {
  // A ring may hold on to the file for a moment; the lock ends now.
  if (locked_) flock(fd_, LOCK_UN);
  if (when_closed) when_closed(*this);
  close(fd_);
}

uint64_t DiskFile::size() const {
  struct stat of{};
  const int got = fstat(fd_, &of);
  CHECK(got == 0);
  return static_cast<uint64_t>(of.st_size);
}

Result<> DiskFile::allocate(uint64_t bytes) {
  struct stat of{};
  CHECK(fstat(fd_, &of) == 0);
  const auto length = static_cast<off_t>(bytes);
  if (of.st_size > length && ftruncate(fd_, length) != 0) {
    return failed("shortening", path_, errno);
  }
  if (bytes == 0) return {};
  const std::string doing = "reserving " + std::to_string(bytes) + " bytes for";
  // Asked first: a reservation that fails half way has filled the disk for everyone meanwhile.
  struct statvfs disk{};
  const auto reserved = static_cast<uint64_t>(of.st_blocks) * 512;
  if (fstatvfs(fd_, &disk) == 0 && bytes > reserved &&
      bytes - reserved > uint64_t{disk.f_bavail} * disk.f_frsize) {
    return failed(doing.c_str(), path_, ENOSPC);
  }
  if (const int error_number = reserve(length); error_number != 0) {
    (void)!ftruncate(fd_, std::min(of.st_size, length));  // gives back what it had got
    return failed(doing.c_str(), path_, error_number);
  }
  if (fsync(fd_) != 0) return failed("flushing", path_, errno);
  return {};
}

int DiskFile::reserve(int64_t bytes) {
  int error_number = 0;
  do {
    error_number = fallocate(fd_, 0, 0, bytes) == 0 ? 0 : errno;
  } while (error_number == EINTR);
  if (error_number != EOPNOTSUPP) return error_number;
  // Then by writing, which O_DIRECT would refuse.
  const int buffered = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
  if (buffered < 0) return errno;
  error_number = posix_fallocate(buffered, 0, bytes);
  close(buffered);
  return error_number;
}

Result<> rename_file(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    return failed("renaming", from + " to " + to, errno);
  }
  return flush_directory_of(to);
}

}  // namespace spillway::io
