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

Namespace namespace_of_identity(std::string_view identity, uint64_t secret) {
  Namespace space;
  space.identity = identity;
  space.seed = XXH3_64bits_withSeed(identity.data(), identity.size(), secret);
  for (uint32_t part = 0; part < 2; ++part) {  // the tenant comes second
    uint64_t bytes = 0;
    if (identity.size() < sizeof bytes) break;
    std::memcpy(&bytes, identity.data(), sizeof bytes);
    identity.remove_prefix(sizeof bytes);
    if (bytes > identity.size()) break;  // no identity that make_namespace() gives
    if (part == 1) space.tenant = identity.substr(0, bytes);
    identity.remove_prefix(bytes);
  }
  return space;
}

bool has_fingerprint(std::string_view identity, std::string_view fingerprint) {
  std::string first;
  append_part(first, fingerprint);
  return identity.starts_with(first);
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
