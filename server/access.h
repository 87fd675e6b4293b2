// Who may ask: API keys, and which web pages (cases I3, I4). Immutable: any thread.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http_parser.h"

namespace spillway::server {

class Access {
 public:
  // `host` is the address listened on. An allowed origin is like "https://chat.example.org"; "*"
  // allows every one.
  Access(const std::vector<std::string>& api_keys, std::vector<std::string> allowed_origins,
         std::string host);

  bool needs_key() const { return !keys_.empty(); }
  // Whether those who ask are to see nothing of each other.
  bool has_tenants() const { return keys_.size() > 1; }
  // The tenant of the request's key ("" where no key is needed); nothing if the key is missing or
  // wrong. Compared in constant time. Takes "Authorization: Bearer KEY", Basic with the key as
  // password (so that a browser can open the page), and "x-api-key: KEY".
  std::optional<std::string> tenant_of(const RequestHead& head) const;

  // False: a web page from somewhere else. Requests without Origin come from no page.
  bool origin_ok(const RequestHead& head) const;
  // What Access-Control-Allow-Origin to send; "" for none.
  std::string allow_origin(const RequestHead& head) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  static Digest digest(std::string_view text);
  bool same_origin(std::string_view origin, std::string_view host) const;

  std::vector<Digest> keys_;
  std::vector<std::string> allowed_origins_;
  std::string host_;
};

}  // namespace spillway::server
