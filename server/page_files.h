// The chat page's files (server/page/), carried in the binary: it works offline and needs no build
// step of its own.
#pragma once

#include <span>
#include <string_view>

namespace spillway::server {

struct PageFile {
  std::string_view path;  // as requested: "/", "/app.js"
  std::string_view type;  // Content-Type
  std::string_view body;
};

std::span<const PageFile> page_files();

// Headers that go with each file: nothing from elsewhere is loaded, and nobody may frame the page.
inline constexpr std::string_view kPageSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace spillway::server
