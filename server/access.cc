#include "server/access.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

#include <algorithm>

namespace spillway::server {
namespace {

std::string decode_base64(std::string_view text) {
  if (text.size() % 4 != 0 || text.size() > 4096) return {};
  std::string out(text.size() / 4 * 3 + 1, '\0');
  const int bytes = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                    reinterpret_cast<const unsigned char*>(text.data()),
                                    static_cast<int>(text.size()));
  if (bytes < 0) return {};
  const auto padding = std::count(text.end() - std::min<size_t>(2, text.size()), text.end(), '=');
  out.resize(static_cast<size_t>(bytes - padding));
  return out;
}

bool starts_with_word(std::string_view text, std::string_view word) {
  if (text.size() <= word.size() || text[word.size()] != ' ') return false;
  return std::equal(word.begin(), word.end(), text.begin(),
                    [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b + 32 : b); });
}

// The key a request brings; "" if none.
std::string key_of(const RequestHead& head) {
  const std::string_view field = head.field("authorization");
  if (starts_with_word(field, "bearer")) {
    std::string_view key = field.substr(7);
    while (key.starts_with(' ')) key.remove_prefix(1);
    return std::string(key);
  }
  if (starts_with_word(field, "basic")) {
    const std::string pair = decode_base64(field.substr(6));
    const size_t colon = pair.find(':');
    return colon == pair.npos ? std::string() : pair.substr(colon + 1);
  }
  if (head.count("x-api-key") > 0) return std::string(head.field("x-api-key"));
  // A page cannot set headers on a WebSocket: OpenAI's clients send the key as a subprotocol.
  constexpr std::string_view kProtocol = "openai-insecure-api-key.";
  const std::string_view protocols = head.field("sec-websocket-protocol");
  const size_t at = protocols.find(kProtocol);
  if (at == protocols.npos) return {};
  const std::string_view key = protocols.substr(at + kProtocol.size());
  return std::string(key.substr(0, key.find_first_of(", ")));
}

// "example.org:8000" without the port; brackets of an IPv6 address stay.
std::string_view host_only(std::string_view host) {
  const size_t colon = host.rfind(':');
  const size_t bracket = host.rfind(']');
  return colon == host.npos || (bracket != host.npos && colon < bracket) ? host
                                                                         : host.substr(0, colon);
}

// A name that DNS cannot point elsewhere, so that no foreign page can pose as this server's own.
bool is_fixed_host(std::string_view host) {
  if (host == "localhost" || host.starts_with('[')) return true;
  return !host.empty() && host.find_first_not_of("0123456789.") == host.npos;
}

}  // namespace

Access::Access(const std::vector<std::string>& api_keys, std::vector<std::string> allowed_origins,
               std::string host)
    : allowed_origins_(std::move(allowed_origins)), host_(std::move(host)) {
  for (const std::string& key : api_keys) keys_.push_back(digest(key));
}

Access::Digest Access::digest(std::string_view text) {
  Digest out;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data());
  return out;
}

std::optional<std::string> Access::tenant_of(const RequestHead& head) const {
  if (keys_.empty()) return "";
  const Digest given = digest(key_of(head));
  bool known = false;
  for (const Digest& key : keys_) {
    known |= CRYPTO_memcmp(key.data(), given.data(), given.size()) == 0;
  }
  if (!known) return std::nullopt;
  return std::string(given.begin(), given.begin() + 16);
}

bool Access::same_origin(std::string_view origin, std::string_view host) const {
  const size_t scheme = origin.find("://");
  if (scheme == origin.npos || origin.substr(scheme + 3) != host) return false;
  const std::string_view name = host_only(host);
  return is_fixed_host(name) || name == host_ || host_ == "0.0.0.0" || host_ == "::";
}

bool Access::origin_ok(const RequestHead& head) const {
  if (head.count("origin") == 0) return true;
  const std::string_view origin = head.field("origin");
  return head.count("origin") == 1 &&
         (same_origin(origin, head.field("host")) || !allow_origin(head).empty());
}

std::string Access::allow_origin(const RequestHead& head) const {
  const std::string_view origin = head.field("origin");
  if (origin.empty()) return {};
  for (const std::string& allowed : allowed_origins_) {
    if (allowed == "*") return "*";
    if (allowed == origin) return allowed;
  }
  return {};
}

}  // namespace spillway::server
