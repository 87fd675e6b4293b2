#include "model/mapped_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

namespace spillway::model {
namespace {

// What the SIGBUS handler knows. A signal handler has no argument, so this is the one table that
// is not a constant; slots are claimed and published by their state, without a lock.
enum SlotState : uint32_t { kFree, kClaimed, kPublished };
struct Slot {
  std::atomic<uint32_t> state{kFree};
  uintptr_t begin = 0;
  uintptr_t end = 0;
  std::array<char, 256> name{};
};
constexpr size_t kFilesMax = 256;
std::array<Slot, kFilesMax> slots;
struct sigaction previous_action;

void write_text(const char* text) {
  // Nothing can be done about a failed write here.
  [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
}

void on_bus_error(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Slot& slot : slots) {
    if (slot.state.load(std::memory_order_acquire) != kPublished) continue;
    if (address < slot.begin || address >= slot.end) continue;
    write_text("spillway: the model file ");
    write_text(slot.name.data());
    write_text(
        " became shorter while in use, or its disk failed; put the whole file back "
        "and start again\n");
    ::_exit(74);  // EX_IOERR
  }
  // Not ours: the fault repeats under whoever handled it before.
  ::sigaction(SIGBUS, &previous_action, nullptr);
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, &previous_action);
  });
}

Slot* claim_slot(uintptr_t begin, size_t bytes, const std::string& path) {
  for (Slot& slot : slots) {
    uint32_t expected = kFree;
    if (!slot.state.compare_exchange_strong(expected, kClaimed)) continue;
    slot.begin = begin;
    slot.end = begin + bytes;
    const size_t length = std::min(path.size(), slot.name.size() - 1);
    std::memcpy(slot.name.data(), path.data(), length);
    slot.name[length] = '\0';
    slot.state.store(kPublished, std::memory_order_release);
    return &slot;
  }
  return nullptr;
}

Error file_error(const std::string& path, const char* what) {
  const int number = errno;
  const ErrorCode code = number == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
  return {code, path + ": cannot " + what + ": " + std::strerror(number)};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return file_error(path, "open the file");
  struct stat status = {};
  if (::fstat(file, &status) != 0) {
    Error error = file_error(path, "read the file's size");
    ::close(file);
    return error;
  }
  if (!S_ISREG(status.st_mode) || status.st_size == 0) {
    ::close(file);
    const char* what = S_ISREG(status.st_mode) ? ": the file is empty" : ": not a regular file";
    return Error{ErrorCode::kInvalidArgument, path + what};
  }
  const auto bytes = static_cast<size_t>(status.st_size);
  void* map = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
  Error map_error = map == MAP_FAILED ? file_error(path, "map the file") : Error{};
  ::close(file);
  if (map == MAP_FAILED) return map_error;

  install_handler();
  Slot* slot = claim_slot(reinterpret_cast<uintptr_t>(map), bytes, path);
  if (slot == nullptr) {
    ::munmap(map, bytes);
    return Error{ErrorCode::kResourceExhausted,
                 path + ": more than " + std::to_string(kFilesMax) + " model files are open"};
  }
  std::shared_ptr<void> mapping(map, [bytes, slot](void* address) {
    slot->state.store(kFree, std::memory_order_release);
    ::munmap(address, bytes);
  });
  return MappedFile(std::move(mapping), {static_cast<const std::byte*>(map), bytes});
}

}  // namespace spillway::model
