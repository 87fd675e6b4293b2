#include "lower_tier.h"

#include "runtime/check.h"

namespace spillway::replay {

// Brings the policy up to date about a block that may have become, or ceased to be, a leaf here.
void LowerTier::offer(uint64_t key) {
  const auto at = held_.find(key);
  if (at == held_.end()) return;
  Held& held = *at->second;
  if (held.offered) policy_->remove(held.candidate);
  const auto children = children_.find(key);
  held.offered = children == children_.end() || children->second == 0;
  held.candidate.last_use = held.block.last_use;
  held.candidate.uses = held.block.uses;
  if (held.offered) policy_->add(held.candidate);
}

void LowerTier::remove(uint64_t key) {
  const auto at = held_.find(key);
  CHECK(at != held_.end());
  const std::unique_ptr<Held> held = std::move(at->second);
  held_.erase(at);
  if (held->offered) policy_->remove(held->candidate);
  policy_->gone(held->candidate);
  const auto siblings = children_.find(held->block.parent);
  if (--siblings->second == 0) children_.erase(siblings);
  offer(held->block.parent);
}

void LowerTier::put(const Block& block, uint64_t now) {
  if (capacity_ == 0) return evicted_(block);
  if (holds(block.key)) return find(block.key, now);
  while (held_.size() >= capacity_) {
    const uint64_t victim = policy_->victim()->key;
    const Block gone = held_.at(victim)->block;
    remove(victim);
    evicted_(gone);
  }
  auto held = std::make_unique<Held>();
  held->block = block;
  held->candidate.key = block.key;
  held->candidate.depth_pages = block.depth;
  const cache::PageMemory known = policy_->admit(block.key, 0, now);
  held->block.uses = std::max(block.uses, known.uses);
  policy_->used(known.last_use, block.last_use, 1);
  held_.emplace(block.key, std::move(held));
  ++children_[block.parent];
  offer(block.key);
  offer(block.parent);
}

void LowerTier::find(uint64_t key, uint64_t now) {
  Held& held = *held_.at(key);
  policy_->found({held.block.last_use, held.block.uses}, 1, now);
  policy_->used(held.block.last_use, now, 1);
  held.block.last_use = now;
  ++held.block.uses;
  offer(key);
}

void LowerTier::take(uint64_t key, uint64_t now) {
  find(key, now);
  remove(key);
}

}  // namespace spillway::replay
