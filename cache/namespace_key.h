// Names of cached pages. A page's key is XXH3-128 over (parent page's key, the page's tokens) with
// the namespace's secret as seed: it names the page's whole prefix. A key is a hint that finds a
// page quickly; namespaces and tokens are always compared as well (prefix_tree.h).
//
// All functions are pure and may be called from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::cache {

using TokenId = int32_t;  // as model::TokenId; the two folders do not see each other

inline constexpr uint32_t kPageTokensMax = 256;

struct PageKey {
  uint64_t low = 0, high = 0;
  friend bool operator==(const PageKey&, const PageKey&) = default;
};

// No hit crosses a namespace: model, tenant and the client's salt must all be equal.
struct NamespaceName {
  std::string_view fingerprint, tenant, cache_salt;
};

struct Namespace {
  // Each part with its length before it, so that no two names give one identity (case I1).
  std::string identity;
  std::string tenant;  // part of the identity; who the pages count for (tenant_shares.h)
  uint64_t seed = 0;   // of the page keys; unpredictable without the secret
};

// `secret` is the process's (or the store's) own: with it unknown, nobody can make keys collide.
Namespace make_namespace(const NamespaceName& name, uint64_t secret);
// The namespace that has this identity, as a store recorded it.
Namespace namespace_of_identity(std::string_view identity, uint64_t secret);
bool has_fingerprint(std::string_view identity, std::string_view fingerprint);

// Whether keys distinguish anything. kConstant makes all keys equal: a test hook (case K17).
enum class KeyMode : uint8_t { kHash, kConstant };

PageKey page_key(KeyMode mode, const Namespace& space, const PageKey& parent,
                 std::span<const TokenId> tokens);

// The keys of a prompt's full pages; computed once, when it arrives.
struct PromptKeys {
  Namespace space;
  uint32_t tokens = 0;         // of the prompt they were made for
  std::vector<PageKey> pages;  // [i]: of the prefix that ends with page i
};

}  // namespace spillway::cache
