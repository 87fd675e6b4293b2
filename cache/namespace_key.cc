#include "cache/namespace_key.h"

#include <xxhash.h>

#include <cstring>

#include "runtime/check.h"

namespace spillway::cache {
namespace {

void append_part(std::string& out, std::string_view part) {
  const uint64_t bytes = part.size();
  char length[sizeof bytes];
  std::memcpy(length, &bytes, sizeof bytes);
  out.append(length, sizeof length);
  out.append(part);
}

}  // namespace

Namespace make_namespace(const NamespaceName& name, uint64_t secret) {
  Namespace space;
  append_part(space.identity, name.fingerprint);
  append_part(space.identity, name.tenant);
  append_part(space.identity, name.cache_salt);
  space.tenant = name.tenant;
  space.seed = XXH3_64bits_withSeed(space.identity.data(), space.identity.size(), secret);
  return space;
}

PageKey page_key(KeyMode mode, const Namespace& space, const PageKey& parent,
                 std::span<const TokenId> tokens) {
  if (mode == KeyMode::kConstant) return {1, 1};
  // One contiguous input: below 241 bytes XXH3 takes a seed without deriving a secret from it.
  struct {
    PageKey parent;
    TokenId tokens[kPageTokensMax];
  } input;
  CHECK(tokens.size() <= kPageTokensMax);
  input.parent = parent;
  std::memcpy(input.tokens, tokens.data(), tokens.size_bytes());
  const XXH128_hash_t hash =
      XXH3_128bits_withSeed(&input, sizeof input.parent + tokens.size_bytes(), space.seed);
  return {hash.low64, hash.high64};
}

}  // namespace spillway::cache
