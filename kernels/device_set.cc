#include "kernels/device_set.h"

#include <algorithm>
#include <list>
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
  struct Member {
    uint32_t device = 0;
    Stream* stream = nullptr;
  };
  // `members` ascend by device; `home` is one of them.
  SetStream(std::vector<Member> members, Stream& home, const std::list<Block>& blocks)
      : members_(std::move(members)), home_(home), blocks_(blocks) {}

  void launch(Launch work) override { home_.launch(std::move(work)); }
  void copy(void* to, const void* from, size_t bytes) override;
  void record(Event& event) override {
    for (const Member& member : members_) {
      member.stream->record(static_cast<SetEvent&>(event).of(member.device));
    }
  }
  void wait(const Event& event) override {
    const auto& set = static_cast<const SetEvent&>(event);
    for (const Member& member : members_) {
      for (uint32_t d = 0; d < set.size(); ++d) member.stream->wait(set.of(d));
    }
  }
  void wait(const Gate& gate, uint32_t level) override {
    for (const Member& member : members_) member.stream->wait(gate, level);
  }

 private:
  const Block* parted(const void* at) const;

  const std::vector<Member> members_;
  Stream& home_;
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
  if (block == nullptr || members_.size() == 1) return home_.copy(to, from, bytes);
  const auto first = static_cast<size_t>(at - block->base);  // in the block
  const size_t end = first + bytes;
  for (size_t page = first / block->page_bytes * block->page_bytes; page < end;
       page += block->page_bytes) {
    for (const Member& member : members_) {
      const PagePart& part = block->parts[member.device];
      const size_t low = std::max(first, page + part.offset);
      const size_t high = std::min(end, page + part.offset + part.bytes);
      if (low >= high) continue;
      member.stream->copy(static_cast<std::byte*>(to) + (low - first),
                          static_cast<const std::byte*>(from) + (low - first), high - low);
    }
  }
}

class Set final : public DeviceSet {
 public:
  Set(std::vector<Device*> devices, uint32_t home)
      : devices_(std::move(devices)),
        home_(*devices_.at(home)),
        compute_({{home, &home_.compute()}}, home_.compute(), blocks_),
        copy_in_(members(&Device::copy_in), home_.copy_in(), blocks_),
        copy_out_(members(&Device::copy_out), home_.copy_out(), blocks_) {}

  Result<DeviceMemory> allocate(size_t bytes) override;
  Result<DeviceMemory> allocate_host(size_t bytes) override { return home_.allocate_host(bytes); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<SetEvent>(devices_); }
  std::unique_ptr<Gate> make_gate() override { return home_.make_gate(); }
  Stream& compute() override { return compute_; }
  Stream& copy_in() override { return copy_in_; }
  Stream& copy_out() override { return copy_out_; }
  std::string description() const override {
    return std::to_string(devices_.size()) + " of " + home_.description();
  }
  bool has_gates() const override { return home_.has_gates(); }
  const Error* failure() const override {
    for (const Device* const device : devices_) {
      if (const Error* const failure = device->failure(); failure != nullptr) return failure;
    }
    return nullptr;
  }
  void part_pages(const std::byte* base, size_t page_bytes, std::vector<PagePart> parts) override;

 private:
  std::vector<SetStream::Member> members(Stream& (Device::*stream)()) {
    std::vector<SetStream::Member> members;
    for (uint32_t d = 0; d < devices_.size(); ++d)
      members.push_back({d, &(devices_[d]->*stream)()});
    return members;
  }

  const std::vector<Device*> devices_;
  Device& home_;
  std::list<Block> blocks_;
  SetStream compute_, copy_in_, copy_out_;
};

Result<DeviceMemory> Set::allocate(size_t bytes) {
  auto memory = home_.allocate(bytes);
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

}  // namespace

std::unique_ptr<DeviceSet> make_device_set(std::vector<Device*> devices, uint32_t home) {
  return std::make_unique<Set>(std::move(devices), home);
}

}  // namespace spillway::kernels
