// What kernels in kernels/cuda/ are written in, on the emulator: threads, barriers, warps, shared
// memory, atomics, 16-bit floats. kernels/cuda/gpu.cuh has the same names on a GPU; that header
// says what each means. Included through kernels/cuda/platform.cuh.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/half.h"
#include "tests/emulator/block.h"

#define SPILLWAY_DEVICE inline
#define SPILLWAY_KERNEL inline
#define SPILLWAY_THREADS(count)
#define SPILLWAY_UNROLL

// The tag is one per expansion and instance of the function around it, as the array is on a GPU.
#define SPILLWAY_SHARED(type, name, count)             \
  static const char name##_tag = 0;                    \
  const ::spillway::kernels::cuda::Shared<type> name = \
      ::spillway::kernels::cuda::static_shared<type>(&name##_tag, (count))

namespace spillway::kernels::cuda {

using emulator::Access;
using emulator::Site;

inline uint32_t thread_index() { return emulator::this_thread().index(); }
inline uint32_t block_threads() { return emulator::this_thread().block().shape().threads; }
inline Index3 block_index() { return emulator::this_thread().block().shape().index; }
inline Index3 grid_blocks() { return emulator::this_thread().block().shape().grid; }

inline void sync_threads(const Site& site = Site::current()) {
  emulator::this_thread().sync_block(site);
}
inline void sync_warp(uint32_t mask = 0xffffffffu, const Site& site = Site::current()) {
  emulator::this_thread().sync_warp(mask, site);
}

template <class T>
T shuffle(T value, uint32_t lane, uint32_t mask = 0xffffffffu, const Site& site = Site::current()) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  emulator::Thread& thread = emulator::this_thread();
  const auto slots = thread.exchange(mask, &value, sizeof value, site);
  if (lane >= emulator::kWarpThreads || (mask >> lane & 1) == 0) {
    thread.report(emulator::DefectKind::kWarp, "takes a value of a lane that has given none", site);
    return value;
  }
  std::memcpy(&value, slots[lane].bytes.data(), sizeof value);
  return value;
}
template <class T>
T shuffle_xor(T value, uint32_t bits, uint32_t mask = 0xffffffffu,
              const Site& site = Site::current()) {
  return shuffle(value, (thread_index() % emulator::kWarpThreads) ^ bits, mask, site);
}
inline uint32_t ballot(bool vote, uint32_t mask = 0xffffffffu, const Site& site = Site::current()) {
  const auto slots = emulator::this_thread().exchange(mask, &vote, sizeof vote, site);
  uint32_t out = 0;
  for (uint32_t lane = 0; lane < emulator::kWarpThreads; ++lane) {
    const bool yes = (mask >> lane & 1) != 0 && slots[lane].bytes[0] != std::byte{0};
    out |= static_cast<uint32_t>(yes) << lane;
  }
  return out;
}
inline bool any(bool vote, uint32_t mask = 0xffffffffu, const Site& site = Site::current()) {
  return ballot(vote, mask, site) != 0;
}
inline bool all(bool vote, uint32_t mask = 0xffffffffu, const Site& site = Site::current()) {
  return ballot(vote, mask, site) == mask;
}

struct alignas(8) Float2 {
  float x, y;
};
struct alignas(16) Float4 {
  float x, y, z, w;
};

template <class T>
class Shared;

// One place in shared memory: reading and writing it go through the emulator's checks. On a GPU it
// is a plain T&, so kernels give its value a type of its own rather than `auto`.
template <class T>
class SharedPlace {
 public:
  SharedPlace(const Shared<T>& array, size_t index, const Site& site)
      : array_(array), index_(index), site_(site) {}
  operator T() const { return array_.template load<T>(index_, site_); }
  const SharedPlace& operator=(T value) const {
    array_.template store<T>(index_, value, site_);
    return *this;
  }
  const SharedPlace& operator=(const SharedPlace& other) const { return *this = T{other}; }
  const SharedPlace& operator+=(T value) const { return *this = T{*this} + value; }
  const SharedPlace& operator*=(T value) const { return *this = T{*this} * value; }

 private:
  const Shared<T>& array_;
  size_t index_;
  Site site_;
};

// operator[] has no place for a default argument, so the index brings the site along.
struct SiteIndex {
  template <std::integral I>
  SiteIndex(I index_in, const Site& site_in = Site::current())
      : index(static_cast<size_t>(index_in)), site(site_in) {}
  size_t index;
  Site site;
};

template <class T>
class Shared {
  static_assert(std::is_trivially_copyable_v<T>);
  static_assert(sizeof(T) >= emulator::SharedMemory::kUnitBytes);

 public:
  Shared(size_t offset, size_t count) : offset_(offset), count_(count) {}

  SharedPlace<T> operator[](const SiteIndex& at) const { return {*this, at.index, at.site}; }

  // sizeof(V) bytes at element `index`, at once.
  template <class V>
  V load(size_t index, const Site& site = Site::current()) const {
    V value;
    std::memset(static_cast<void*>(&value), 0xff, sizeof value);
    if (may<V>(Access::kRead, index, site)) std::memcpy(&value, bytes(index), sizeof value);
    return value;
  }
  template <class V>
  void store(size_t index, const V& value, const Site& site = Site::current()) const {
    if (may<V>(Access::kWrite, index, site)) std::memcpy(bytes(index), &value, sizeof value);
  }
  T add_atomically(size_t index, T value, const Site& site) const {
    T before{};
    if (!may<T>(Access::kAtomic, index, site)) return before;
    std::memcpy(&before, bytes(index), sizeof before);
    const T after = before + value;
    std::memcpy(bytes(index), &after, sizeof after);
    return before;
  }

  // The elements from `first` on; more than there are is found when one is touched.
  Shared part(size_t first) const {
    return {offset_ + first * sizeof(T), first < count_ ? count_ - first : 0};
  }
  size_t byte_offset(size_t index) const { return offset_ + index * sizeof(T); }
  // Whether `value_bytes` at `index` lie within; reported where they do not.
  bool within(size_t index, size_t value_bytes, const Site& site) const {
    if (index < count_ && value_bytes <= (count_ - index) * sizeof(T)) return true;
    emulator::this_thread().report(
        emulator::DefectKind::kOutOfBounds,
        "accesses element " + std::to_string(index) + " of " + std::to_string(count_), site);
    return false;
  }

 private:
  template <class V>
  bool may(Access access, size_t index, const Site& site) const {
    if (!within(index, sizeof(V), site)) return false;
    const emulator::SharedRange range{byte_offset(index), sizeof(V), alignof(V)};
    return emulator::this_thread().check(access, range, site);
  }
  std::byte* bytes(size_t index) const {
    return emulator::this_thread().block().shared().at(byte_offset(index));
  }

  size_t offset_;
  size_t count_;
};

template <class T>
Shared<T> static_shared(const void* tag, size_t count) {
  emulator::Block& block = emulator::this_thread().block();
  return {block.shared().static_array(tag, count * sizeof(T), block.defects()), count};
}

template <class T>
Shared<T> dynamic_shared(size_t first_byte, size_t count, const Site& site = Site::current()) {
  emulator::Thread& thread = emulator::this_thread();
  if (first_byte + count * sizeof(T) > thread.block().shared().dynamic_bytes()) {
    thread.report(emulator::DefectKind::kOutOfBounds, "takes more than its dynamic shared memory",
                  site);
    return {0, 0};
  }
  return {first_byte, count};
}

// Threads of a launch take turns, so that plain code is atomic.
template <class T>
T atomic_add(T* to, T value) {
  return std::exchange(*to, *to + value);
}
template <class T>
T atomic_max(T* to, T value) {
  return std::exchange(*to, std::max(*to, value));
}
template <class T>
T atomic_add(const Shared<T>& array, size_t index, T value, const Site& site = Site::current()) {
  return array.add_atomically(index, value, site);
}

inline float fused(float a, float b, float c) { return std::fma(a, b, c); }
inline float square_root(float x) { return std::sqrt(x); }
inline uint32_t bits_of(float value) {  // NaN as a GPU's arithmetic makes it
  return std::isnan(value) ? 0x7fffffffu : std::bit_cast<uint32_t>(value);
}
inline float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }
inline int32_t to_nearest_int(float x) { return static_cast<int32_t>(std::nearbyint(x)); }
inline uint32_t count_bits(uint32_t bits) { return static_cast<uint32_t>(std::popcount(bits)); }
inline uint64_t upper_product(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(Wide{a} * b >> 64);
}
inline uint32_t subtract_bytes(uint32_t a, uint32_t b) {
  uint32_t out = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    out |= (((a >> shift) - (b >> shift)) & 0xff) << shift;
  }
  return out;
}

inline float f16_to_float(uint16_t bits) { return f16_to_f32(bits); }
inline float bf16_to_float(uint16_t bits) { return bf16_to_f32(bits); }
inline uint16_t float_to_f16(float value) { return f32_to_f16(value); }
inline uint16_t float_to_bf16(float value) { return f32_to_bf16(value); }

}  // namespace spillway::kernels::cuda
