#include "kernels/device_set.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/check.h"

namespace spillway::kernels {
namespace {

// Memory that the set gave, and how its pages are parted.
struct Block {
  const std::byte* base = nullptr;
  size_t bytes = 0;
  std::weak_ptr<void> owner;
  size_t page_bytes = 0;        // 0: not parted
  std::vector<PagePart> parts;  // (device)

  bool holds(const std::byte* at) const { return at >= base && at < base + bytes; }
};

// One event of each device.
class SetEvent final : public Event {
 public:
  explicit SetEvent(const std::vector<Device*>& devices) {
    for (Device* device : devices) events_.push_back(device->make_event());
  }
  bool done() const override {
    return std::all_of(events_.begin(), events_.end(), [](const auto& e) { return e->done(); });
  }
  Task<> wait() override {
    for (const auto& event : events_) co_await event->wait();
  }
  Event& of(uint32_t device) const { return *events_[device]; }
  size_t size() const { return events_.size(); }

 private:
  std::vector<std::unique_ptr<Event>> events_;  // (device)
};

// The same stream of several devices.
class SetStream final : public Stream {
 public:
  enum class Use : uint8_t { kHome, kAll };
  // `streams` (device). What `use` says: whether pages are copied and waits kept by all or by home.
  SetStream(std::vector<Stream*> streams, uint32_t home, Use use, const std::list<Block>& blocks)
      : streams_(std::move(streams)), home_(home), use_(use), blocks_(blocks) {}

  void launch(Launch work) override { home().launch(std::move(work)); }
  void copy(void* to, const void* from, size_t bytes) override;
  void record(Event& event) override {
    for (uint32_t d = 0; d < streams_.size(); ++d) {
      streams_[d]->record(static_cast<SetEvent&>(event).of(d));
    }
  }
  void wait(const Event& event) override {
    const auto& set = static_cast<const SetEvent&>(event);
    for (uint32_t to = 0; to < streams_.size(); ++to) {
      if (!is_used(to)) continue;
      for (uint32_t d = 0; d < set.size(); ++d) streams_[to]->wait(set.of(d));
    }
  }
  void wait(const Gate& gate, uint32_t level) override {
    for (uint32_t d = 0; d < streams_.size(); ++d) {
      if (is_used(d)) streams_[d]->wait(gate, level);
    }
  }
  void replace(uint32_t device, Stream& stream) { streams_[device] = &stream; }

 private:
  bool is_used(uint32_t device) const { return use_ == Use::kAll || device == home_; }
  Stream& home() const { return *streams_[home_]; }
  const Block* parted(const void* at) const;

  std::vector<Stream*> streams_;  // (device)
  const uint32_t home_;
  const Use use_;
  const std::list<Block>& blocks_;
};

const Block* SetStream::parted(const void* at) const {
  const auto found = std::find_if(blocks_.begin(), blocks_.end(), [at](const Block& block) {
    return block.page_bytes != 0 && block.holds(static_cast<const std::byte*>(at)) &&
           !block.owner.expired();
  });
  return found == blocks_.end() ? nullptr : &*found;
}

void SetStream::copy(void* to, const void* from, size_t bytes) {
  const Block* block = parted(from);
  const auto* at = static_cast<const std::byte*>(from);
  if (block == nullptr) {
    block = parted(to);
    at = static_cast<const std::byte*>(to);
  }
  if (block == nullptr || use_ == Use::kHome) return home().copy(to, from, bytes);
  const auto first = static_cast<size_t>(at - block->base);  // in the block
  const size_t end = first + bytes;
  for (size_t page = first / block->page_bytes * block->page_bytes; page < end;
       page += block->page_bytes) {
    for (uint32_t d = 0; d < streams_.size(); ++d) {
      const PagePart& part = block->parts[d];
      const size_t low = std::max(first, page + part.offset);
      const size_t high = std::min(end, page + part.offset + part.bytes);
      if (low >= high) continue;
      streams_[d]->copy(static_cast<std::byte*>(to) + (low - first),
                        static_cast<const std::byte*>(from) + (low - first), high - low);
    }
  }
}

class Set final : public DeviceSet {
 public:
  Set(std::vector<Device*> devices, uint32_t home)
      : devices_(std::move(devices)),
        home_(home),
        host_reaches_memory_(devices_.at(home)->host_reaches_memory()),
        compute_(streams(&Device::compute), home, SetStream::Use::kHome, blocks_),
        copy_in_(streams(&Device::copy_in), home, SetStream::Use::kAll, blocks_),
        copy_out_(streams(&Device::copy_out), home, SetStream::Use::kAll, blocks_) {
    CHECK(home < devices_.size());
  }

  Result<DeviceMemory> allocate(size_t bytes) override;
  // Who tries out a disk may ask while there is no device.
  Result<DeviceMemory> allocate_host(size_t bytes) override {
    const std::lock_guard lock(mutex_);
    if (devices_[home_] == nullptr) return taken_out_;
    return home().allocate_host(bytes);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<SetEvent>(devices_); }
  std::unique_ptr<Gate> make_gate() override { return home().make_gate(); }
  Stream& compute() override { return compute_; }
  Stream& copy_in() override { return copy_in_; }
  Stream& copy_out() override { return copy_out_; }
  std::string description() const override {
    if (devices_.size() == 1) return home().description();
    return std::to_string(devices_.size()) + " of " + home().description();
  }
  bool has_gates() const override { return home().has_gates(); }
  bool host_reaches_memory() const override { return host_reaches_memory_; }
  const Error* failure() const override {
    const std::lock_guard lock(mutex_);
    for (const Device* const device : devices_) {
      if (device == nullptr) return &taken_out_;
      if (const Error* const failure = device->failure(); failure != nullptr) return failure;
    }
    return nullptr;
  }
  void part_pages(const std::byte* base, size_t page_bytes, std::vector<PagePart> parts) override;
  void take_out(uint32_t index) override {
    const std::lock_guard lock(mutex_);
    devices_.at(index) = nullptr;
  }
  void replace(uint32_t index, Device& device) override;
  bool has_ended(uint32_t index) const override {
    const Device* const device = devices_.at(index);
    return device == nullptr || device->failure() != nullptr;
  }

 private:
  Device& home() const { return *devices_[home_]; }
  std::vector<Stream*> streams(Stream& (Device::*stream)()) {
    std::vector<Stream*> streams;
    for (Device* device : devices_) streams.push_back(&(device->*stream)());
    return streams;
  }

  std::vector<Device*> devices_;
  mutable std::mutex mutex_;  // whoever replaces a device is on another thread than who asks
  const uint32_t home_;
  const bool host_reaches_memory_;  // home's; a fresh device is of the same kind
  const Error taken_out_{ErrorCode::kUnavailable, "a device that ended was taken out"};
  std::list<Block> blocks_;
  SetStream compute_, copy_in_, copy_out_;
};

Result<DeviceMemory> Set::allocate(size_t bytes) {
  auto memory = home().allocate(bytes);
  blocks_.remove_if([](const Block& block) { return block.owner.expired(); });
  if (memory) {
    blocks_.push_back({.base = memory->data, .bytes = bytes, .owner = memory->owner, .parts = {}});
  }
  return memory;
}

void Set::part_pages(const std::byte* base, size_t page_bytes, std::vector<PagePart> parts) {
  CHECK(parts.size() == devices_.size());
  size_t covered = 0;
  for (const PagePart& part : parts) {
    CHECK(part.offset == covered);
    covered += part.bytes;
  }
  CHECK(covered == page_bytes);
  for (Block& block : blocks_) {
    if (block.base != base || block.owner.expired()) continue;
    block.page_bytes = page_bytes;
    block.parts = std::move(parts);
    return;
  }
}

void Set::replace(uint32_t index, Device& device) {
  CHECK(index < devices_.size());
  const std::lock_guard lock(mutex_);
  devices_[index] = &device;
  compute_.replace(index, device.compute());
  copy_in_.replace(index, device.copy_in());
  copy_out_.replace(index, device.copy_out());
}

}  // namespace

std::unique_ptr<DeviceSet> make_device_set(std::vector<Device*> devices, uint32_t home) {
  return std::make_unique<Set>(std::move(devices), home);
}

}  // namespace spillway::kernels
