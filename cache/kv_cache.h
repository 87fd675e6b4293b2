// The KV cache of one device: page pools, prefix tree and sequences, as the engine uses them.
//
// Owner and thread: the engine thread owns the cache and makes every call; nothing takes a lock and
// nothing suspends. keys() is the exception: it is pure and any thread may call it.
//
// Life of a sequence:   keys() -> begin() -> { reserve() -> the step runs -> commit() }* ->
// release()
//   preempted           release(), later keys() and begin() with all tokens known so far
//   n > 1               fork() after the prompt is committed
//
// Quiesce rule (case K2): a page that was reserved may be written by the step that runs. release(),
// reserve(), commit() and fork() of a sequence are called only while no enqueued step names that
// sequence; clear(), begin() and calls for other sequences are always allowed, for sealed pages are
// never written and pinned pages never move or die.
//
// Limits: pages. reserve() and fork() take what they need whole or take nothing; eviction makes
// room from sealed pages without pins (sessions' pages last). Nobody waits here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/eviction_policy.h"
#include "cache/namespace_key.h"
#include "cache/page_counts.h"
#include "cache/page_pool.h"
#include "cache/prefix_tree.h"
#include "cache/sequence.h"
#include "kernels/paged_kv.h"

namespace spillway::cache {

struct KvCacheGroup {
  kernels::KvGroupLayout layout;
  std::byte* memory = nullptr;  // capacity * layout.page_bytes() bytes, 4 KiB aligned; outlives us
  uint32_t capacity = 0;        // pages
};

struct KvCacheOptions {
  std::vector<KvCacheGroup> groups;  // 1 to kGroupsMax, of one page_tokens
  std::string fingerprint;           // RunnerShape's
  // Off: every sequence computes all it needs; forks still share.
  bool prefix_caching = true;
  uint64_t secret = 0;               // random per process; fixed in tests
  uint32_t sessions_max = 1u << 16;  // further hold_session() are ignored
  // Of the full group's pages, the most that pinned prefixes may cover.
  double pinned_share_max = 0.25;
  KeyMode key_mode = KeyMode::kHash;
};

struct GroupStats {  // of one layer group; pages
  uint32_t capacity = 0, free = 0, writable = 0, sealed = 0, filling = 0, orphaned = 0;
  uint32_t pinned = 0;   // sealed pages under a lease
  uint64_t evicted = 0;  // since the start
  uint64_t page_bytes = 0;
};

struct KvCacheStats {
  std::vector<GroupStats> groups;
  uint32_t sequences = 0, sessions = 0;
  uint32_t pinned_prefixes = 0, pinned_prefix_pages = 0;
  uint64_t tree_nodes = 0, tree_namespaces = 0;
  uint64_t remapped_pages = 0;  // computed twice and given back: another sequence was first (K9)
};

// A path of the tree that stays where it is while its pages are copied elsewhere. `pages[g][i]` is
// the page at position i, kNoPage where the group has none there.
struct PinnedPath {
  Lease lease;
  std::array<std::vector<kernels::PageId>, kGroupsMax> pages;
};

// What a waiting prompt would find, without touching anything.
struct Peek {
  uint32_t cached_tokens = 0;  // a multiple of page_tokens, less than the prompt
  PageCounts unpinned{};       // pages of these that are evictable now: begin() takes them out
  uint64_t next_page_key = 0;  // of the first full page not found, 0 for none: who computes it?
};

class KvCache {
 public:
  KvCache(KvCacheOptions options, std::unique_ptr<EvictionPolicy> policy);
  ~KvCache();  // REQUIRES: every sequence was released
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  uint32_t page_tokens() const;
  // Keys of `tokens` in the namespace of tenant and salt. About 20 ns a page.
  PromptKeys keys(std::string_view tenant, std::string_view cache_salt,
                  std::span<const TokenId> tokens) const;

  // `tokens` are those that `keys` was made for. About 10 us for 32k tokens that match.
  uint32_t match_length(const PromptKeys& keys, std::span<const TokenId> tokens) const;
  Peek peek(const PromptKeys& keys, std::span<const TokenId> tokens) const;
  // The first token at which the prompt differs from what is cached, if it differs (prefix_tree.h).
  std::optional<uint32_t> first_divergence(const PromptKeys& keys,
                                           std::span<const TokenId> tokens) const;
  // Changes whenever the answer of match_length() or peek() to anything may have.
  uint64_t version() const;

  // Starts a sequence at the end of what is cached of `tokens` (at least one is left to compute),
  // and pins that. Always succeeds: it takes no page. With `cached_max` it starts after at most
  // that many cached tokens: who needs the logits of the whole prompt computes all of it.
  std::unique_ptr<Sequence> begin(const PromptKeys& keys, std::span<const TokenId> tokens,
                                  uint32_t cached_max = UINT32_MAX);

  // Pages for `count` tokens after sequence.size(), in all groups or (false) in none.
  [[nodiscard]] bool reserve(Sequence& sequence, uint32_t count);
  PageCounts pages_needed(const Sequence& sequence, uint32_t count) const;
  PageCounts pages_available() const;  // free or evictable

  // The step that wrote `tokens` at positions size(), ... has ended. REQUIRES: reserved. Full pages
  // are sealed and shared; where another sequence was first, its page replaces ours in the tables.
  // Window pages that no later query sees are given back.
  void commit(Sequence& sequence, std::span<const TokenId> tokens);

  // A second sequence with the same tokens: shares sealed pages and gets copies of the others.
  // `copy` must be ordered before the next step that writes either sequence. Null: out of pages.
  using CopyPage = std::function<void(uint32_t group, kernels::PageId from, kernels::PageId to)>;
  std::unique_ptr<Sequence> fork(Sequence& sequence, const CopyPage& copy);

  // Ends a sequence in any state. Its sealed pages stay cached, the others are free at once. With a
  // session, the path becomes that session's (in place of its former one): evicted last.
  void release(std::unique_ptr<Sequence> sequence, std::string_view session = {});
  void end_session(std::string_view session);

  // Keeps what is cached of `tokens` until unpin_prefix() or clear(), in place of what `name` had:
  // pages that go after all others of their tenant (but do go before a request would fail, or
  // another tenant lose its share). False, and nothing has changed: nothing of it is cached, or
  // pins would cover more than pinned_share_max.
  bool pin_prefix(std::string_view name, const PromptKeys& keys, std::span<const TokenId> tokens);
  void unpin_prefix(std::string_view name);
  uint32_t pinned_pages(std::string_view name) const;  // that are still there; 0: no such pin
  uint32_t pinned_pages_max() const;                   // that all pins may cover

  // The same for the static part of prompts: its pages go last, with those of sessions. Who calls
  // bounds the number of names, and ends them.
  void hold_static(std::string_view name, const PromptKeys& keys, std::span<const TokenId> tokens);
  void drop_static(std::string_view name);

  // Keeps the window pages before `position` (rounded down to a page) when the sequence passes it,
  // so that other prompts can branch there. Prompt ends, turn ends and forks of the tree that a
  // prompt ran into are kept anyway. REQUIRES: position >= sequence.size().
  void keep_breakpoint(Sequence& sequence, uint32_t position);

  // Transfers from and to other tiers (tiers.h).
  // Pins what is cached of `tokens`, within `pages_max` pages. `with_windows`: as far as a sequence
  // could start from it, window pages included; else full-attention pages only. Nothing when that
  // is no page.
  std::optional<PinnedPath> pin_path(const PromptKeys& keys, std::span<const TokenId> tokens,
                                     uint32_t pages_max, bool with_windows);
  // A page that a transfer fills, or kNoPage if there is no room. It is the caller's until adopt()
  // takes it or free_filling() gives it back. Given up while an operation may still write it, it is
  // orphaned until then.
  // `gently`: there is none either where a page would have to go that something holds.
  kernels::PageId begin_filling(uint32_t group, bool gently = false);
  void orphan_filling(uint32_t group, kernels::PageId page);
  void free_filling(uint32_t group, kernels::PageId page);
  // The sequence goes on after pages that were loaded instead of computed: `pages[i]` hold the next
  // pages of `tokens` after size(), in window groups only those that the new end sees. All become
  // sealed and shared; where the tree has one already, ours is freed. REQUIRES: can_adopt(), and no
  // enqueued step names the sequence.
  bool can_adopt(const Sequence& sequence) const;  // it ends at a shared page, nothing is reserved
  void adopt(Sequence& sequence, std::span<const TokenId> tokens, std::vector<PageSet> pages);
  Namespace namespace_of(std::string_view identity) const;  // as a store recorded it
  bool is_ours(std::string_view identity) const;  // of this model, KV format and page size
  PageKey key_of(const Namespace& space, const PageKey& parent,
                 std::span<const TokenId> tokens) const;
  // The sequence, which ends at a page boundary and has nothing reserved, goes on in these pages
  // (taken from begin_filling()): a step has written there, and commit() follows.
  void reserve_filled(Sequence& sequence, const std::vector<PageSet>& pages);
  const kernels::KvGroupLayout& layout(uint32_t group) const {
    return options_.groups[group].layout;
  }
  std::byte* page_data(uint32_t group, kernels::PageId page) const {
    return pools_[group].data(page);
  }
  PageState page_state(uint32_t group, kernels::PageId page) const {
    return pools_[group].state(page);
  }
  uint32_t page_pins(uint32_t group, kernels::PageId page) const {
    return pools_[group].pins(page);
  }
  uint32_t groups() const { return static_cast<uint32_t>(pools_.size()); }
  size_t page_bytes(uint32_t group) const { return pools_[group].page_bytes(); }
  // First page of a window group that queries at page boundary `pages` and after can see; 0 for
  // full attention.
  uint32_t first_visible_page(uint32_t group, uint32_t pages) const {
    return tree_->first_visible(group, pages);
  }
  bool is_window(uint32_t group) const { return options_.groups[group].layout.window > 0; }

  // Drops every cached page that no sequence holds, sessions' and pinned ones as well. Returns how
  // many.
  uint64_t clear();

  // The device's memory is lost: drops every cached page that nothing reads or writes any more.
  // True: nothing is left but orphans, and the pages may be moved. False: look again when
  // transfers have ended. REQUIRES: every sequence was released.
  bool drop_all();
  // Pages of group g lie at memory[g] from now on. REQUIRES: drop_all().
  void move_to(const std::vector<std::byte*>& memory);

  KvCacheStats stats() const;
  // O(1): the sums of the counters. CHECKs; the engine calls it each step.
  void check_counters() const;
  // Every invariant of DESIGN, by a full walk. Empty, or what is wrong.
  std::string check_integrity() const;

 private:
  PrefixTree::Match match(const PromptKeys& keys, std::span<const TokenId> tokens,
                          uint32_t cached_max = UINT32_MAX) const;
  uint32_t first_visible(uint32_t group, uint32_t position) const;
  bool make_room(const PageCounts& pages);
  std::unique_ptr<Sequence> start(Lease lease, uint32_t size);
  void share_full_pages(Sequence& sequence);
  void give_back_behind_window(Sequence& sequence);
  void hold_session(std::string_view session, const Lease& path);
  void keep_private(Sequence& sequence, std::span<const TokenId> tokens, const PageSet& pages);
  std::string check_tables(const Sequence& sequence, uint32_t group,
                           std::vector<bool>& written) const;

  KvCacheOptions options_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::vector<PagePool> pools_;  // [group]
  std::unique_ptr<PrefixTree> tree_;
  std::vector<Sequence*> sequences_;
  std::unordered_map<std::string, Lease> sessions_;  // soft leases; empty ones are swept up
  std::unordered_map<std::string, Lease> pinned_;    // as well
  std::unordered_map<std::string, Lease> statics_;
};

}  // namespace spillway::cache
