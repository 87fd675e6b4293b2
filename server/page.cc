#include "server/page.h"

#include <algorithm>

#include "runtime/check.h"
#include "server/page_files.h"

namespace spillway::server {
namespace {

const PageFile* find_file(std::string_view path) {
  const auto files = page_files();
  const auto it = std::find_if(files.begin(), files.end(),
                               [&](const PageFile& file) { return file.path == path; });
  return it == files.end() ? nullptr : &*it;
}

}  // namespace

bool is_page(std::string_view path) { return find_file(path) != nullptr; }

Response page_response(std::string_view path) {
  const PageFile* file = find_file(path);
  CHECK(file != nullptr);
  return {.content_type = std::string(file->type),
          .body = std::string(file->body),
          .fields = {{"content-security-policy", std::string(kPageSecurityPolicy)},
                     {"x-content-type-options", "nosniff"},
                     {"referrer-policy", "no-referrer"},
                     {"cache-control", "no-cache"}}};
}

}  // namespace spillway::server
