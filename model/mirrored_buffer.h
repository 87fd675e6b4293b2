// Arrays laid out one after the other in host memory, and a twin of the same layout in a device's:
// one copy brings all of them there. One owner; one thread at a time.
#pragma once

#include <cstddef>
#include <utility>

#include "kernels/device.h"
#include "runtime/check.h"
#include "runtime/result.h"

namespace spillway::model {

class MirroredBuffer {
 public:
  // An array: filled in at `host`, where the device will find it at `device`.
  template <class T>
  struct Array {
    T* host = nullptr;
    const T* device = nullptr;
  };
  static constexpr size_t kAlignment = 16;  // of each array

  // Bytes that an array takes at most.
  template <class T>
  static constexpr size_t bytes_max(size_t count) {
    return count * sizeof(T) + kAlignment;
  }

  // Makes room for `bytes`, once: filling it allocates nothing.
  Result<> reserve(kernels::Device& device, size_t bytes) {
    CHECK(host_.bytes == 0);
    auto host = device.allocate_host(bytes);
    if (!host) return host.error();
    auto twin = device.allocate(bytes);
    if (!twin) return twin.error();
    host_ = *std::move(host);
    twin_ = *std::move(twin);
    return {};
  }

  // REQUIRES: no copy of it is in flight.
  void clear() { used_ = 0; }
  // The next array comes there, and all before goes up. Returns where it would have come.
  size_t seek(size_t at) { return std::exchange(used_, at); }

  // REQUIRES: reserve() has made room for it.
  template <class T>
  Array<T> take(size_t count) {
    const size_t at = (used_ + kAlignment - 1) / kAlignment * kAlignment;
    used_ = at + count * sizeof(T);
    CHECK(used_ <= host_.bytes);
    return {reinterpret_cast<T*>(host_.data + at), reinterpret_cast<const T*>(twin_.data + at)};
  }

  void copy_up(kernels::Stream& stream) const {
    if (used_ > 0) stream.copy(twin_.data, host_.data, used_);
  }

 private:
  kernels::DeviceMemory host_, twin_;
  size_t used_ = 0;
};

}  // namespace spillway::model
