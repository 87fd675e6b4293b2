// The memory that the simulated CUDA runtime knows: a GPU's, and host memory that is registered.
//
// What is a GPU's traps when host code touches it, where the runtime is driven step by step: it is
// readable only while an operation runs (Access). With threads it is plain memory, so that
// ThreadSanitizer sees all who touch it.
//
// Thread: that of the runtime's calls; Access also a stream's, where it does nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace spillway::emulator {

class SimulatedMemory {
 public:
  struct Region {
    std::byte* at = nullptr;
    size_t bytes = 0;
    std::byte* mapping = nullptr;  // a GPU's: what is mapped for it
    size_t mapped = 0;
    int device = 0;
    bool on_device() const { return mapping != nullptr; }
    bool holds(const void* from, size_t length) const {
      const auto* const first = static_cast<const std::byte*>(from);
      return first >= at && first + length <= at + bytes;
    }
  };
  // What streams call an address of registered memory: nothing that the host could touch.
  static constexpr uint64_t kDeviceAlias = uint64_t{1} << 46;

  SimulatedMemory(size_t device_bytes, size_t pinned_bytes, bool traps)
      : device_bytes_(device_bytes), pinned_bytes_(pinned_bytes), traps_(traps) {}
  ~SimulatedMemory();
  SimulatedMemory(const SimulatedMemory&) = delete;
  SimulatedMemory& operator=(const SimulatedMemory&) = delete;

  // Full of garbage, aligned to 256 bytes and no more. Null: there is not that much left.
  void* allocate(size_t bytes, int device = 0);
  bool free(void* at);  // false: not what allocate() gave
  enum class Registered : uint8_t { kYes, kAlready, kTooMuch };
  Registered add_host(void* at, size_t bytes);
  bool remove_host(void* at);  // false: not what add_host() was given
  void clear();                // as a reset does

  // The region that `at` lies in. Null: none, so pageable memory, or no memory.
  const Region* find(const void* at) const;
  // The host's side of an address that streams use. Null: it is none.
  std::byte* host_of(uint64_t device_address, size_t bytes) const;

  size_t device_bytes() const { return device_bytes_; }
  size_t device_bytes_free() const { return device_bytes_ - device_used_; }
  std::string left() const;  // what nobody freed, a line each

  static constexpr int kEveryDevice = -1;
  // While one exists operations may touch a GPU's memory: that GPU's, or all.
  class Access {
   public:
    explicit Access(SimulatedMemory& memory, int device = kEveryDevice)
        : memory_(memory), device_(device) {
      memory_.protect(false, device_);
    }
    ~Access() { memory_.protect(true, device_); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    SimulatedMemory& memory_;
    const int device_;
  };

 private:
  void protect(bool on, int device);

  const size_t device_bytes_;
  const size_t pinned_bytes_;
  const bool traps_;
  size_t device_used_ = 0;
  size_t pinned_used_ = 0;
  std::map<const std::byte*, Region> regions_;  // by their begin
};

}  // namespace spillway::emulator
