// spillway store: what people look at and do to the pages kept on NVMe. No prompt text, token,
// tenant or salt is ever printed: a namespace shows as a digest.
#include <openssl/sha.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/block_store.h"
#include "io/make_ring.h"
#include "io/sector_buffer.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "server/cli/commands.h"
#include "server/cli/sizes.h"

namespace spillway::server {
namespace {

std::string hex(std::string_view bytes, size_t digits) {
  std::string out;
  for (const char byte : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(byte));
    out += two;
    if (out.size() >= digits) break;
  }
  return out.substr(0, digits);
}

std::string namespace_id(std::string_view identity) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(identity.data()), identity.size(), digest);
  return hex({reinterpret_cast<const char*>(digest), sizeof digest}, 12);
}

// The model's fingerprint: the first part of an identity, with its length before it
// (cache/namespace_key.h).
std::string model_id(std::string_view identity) {
  uint64_t bytes = 0;
  if (identity.size() < sizeof bytes) return "?";
  std::memcpy(&bytes, identity.data(), sizeof bytes);
  identity.remove_prefix(sizeof bytes);
  if (bytes > identity.size()) return "?";
  const std::string_view fingerprint = identity.substr(0, bytes);
  const bool readable = std::all_of(fingerprint.begin(), fingerprint.end(),
                                    [](char c) { return std::isalnum(c) != 0 || c == '-'; });
  return readable ? std::string(fingerprint.substr(0, 12)) : hex(fingerprint, 12);
}

struct NamespaceRow {
  uint64_t pages = 0, bytes = 0, tokens = 0, deepest = 0;
};

class StoreTool {
 public:
  explicit StoreTool(const StoreOptions& options) : options_(options) {}

  Task<> run() {
    io::BlockStoreOptions options;
    options.directory = options_.directory;
    options.slot_bytes = {io::kSectorBytes};  // it puts nothing
    options.existing = true;
    auto opened = co_await io::BlockStore::open(options, loop_, *ring_);
    if (!opened) {
      const bool none = opened.error().code == ErrorCode::kNotFound;
      fail(none ? "there is no store in " + options_.directory : opened.error().message);
      co_return;
    }
    store_ = std::move(*opened);
    switch (options_.action) {
      case StoreAction::kList:
        list();
        break;
      case StoreAction::kVerify:
        co_await verify();
        break;
      case StoreAction::kStats:
        stats();
        break;
      case StoreAction::kRemove:
        remove();
        break;
    }
    co_await store_->close();
    co_await ring_->drain();
  }
  int exit_code() const { return exit_code_; }
  EngineLoop& loop() { return loop_; }

 private:
  void fail(const std::string& message) {
    std::fprintf(stderr, "spillway: %s\n", message.c_str());
    exit_code_ = 1;
  }
  std::vector<io::StoredPage> pages() const {
    std::vector<io::StoredPage> found;
    store_->for_each([&](const io::StoredPage& page) { found.push_back(page); });
    return found;
  }
  void list() const;
  void stats() const;
  Task<> verify();
  void remove();

  const StoreOptions& options_;
  RealClock clock_;
  io::ChosenParker chosen_ = io::make_parker();
  EngineLoop loop_{clock_, *chosen_.parker};
  std::unique_ptr<io::Ring> ring_ = io::make_ring(chosen_, loop_);
  std::unique_ptr<io::BlockStore> store_;
  StopFlag never_;
  int exit_code_ = 0;
};

void StoreTool::list() const {
  std::map<std::pair<std::string, std::string>, NamespaceRow> rows;
  store_->for_each([&](const io::StoredPage& page) {
    NamespaceRow& row = rows[{model_id(page.name.space), namespace_id(page.name.space)}];
    ++row.pages;
    row.bytes += page.stored_bytes;
    row.tokens += page.name.tokens.size();
    row.deepest = std::max<uint64_t>(row.deepest, page.name.position + 1);
  });
  std::printf("%-13s %-13s %10s %12s %12s %14s\n", "MODEL", "NAMESPACE", "PAGES", "BYTES", "TOKENS",
              "LONGEST PREFIX");
  for (const auto& [name, row] : rows) {
    std::printf("%-13s %-13s %10s %12s %12s %8s pages\n", name.first.c_str(), name.second.c_str(),
                grouped_digits(row.pages).c_str(), bytes_text(row.bytes).c_str(),
                grouped_digits(row.tokens).c_str(), grouped_digits(row.deepest).c_str());
  }
}

void StoreTool::stats() const {
  const io::BlockStoreStats stats = store_->stats();
  std::map<std::string, uint64_t> models, spaces;
  store_->for_each([&](const io::StoredPage& page) {
    ++models[model_id(page.name.space)];
    ++spaces[std::string(page.name.space)];
  });
  const auto row = [](const char* name, const std::string& value) {
    std::printf("%-12s %s\n", name, value.c_str());
  };
  row("directory", options_.directory);
  row("moved by", ring_->description());
  row("file", bytes_text(stats.file_bytes));
  row("for pages", bytes_text(stats.capacity_bytes));
  row("used", bytes_text(stats.used_bytes) + " (" + grouped_digits(stats.used_bytes) + " bytes)");
  row("pages", grouped_digits(stats.pages));
  row("namespaces", grouped_digits(spaces.size()));
  row("models", grouped_digits(models.size()));
  if (stats.read_only) row("read-only", stats.why_read_only);
}

// Reads every page. Those whose bytes do not verify are erased: they could never be served.
Task<> StoreTool::verify() {
  uint64_t good = 0, bytes = 0;
  for (const io::StoredPage& page : pages()) {
    const io::SectorBuffer buffer(page.stored_bytes);
    const auto read =
        co_await store_->get(page.slot, page.generation, buffer.bytes(), buffer.owner(), never_);
    if (read) {
      ++good;
      bytes += page.stored_bytes;
      continue;
    }
    std::printf("slot %u: %s\n", static_cast<unsigned>(page.slot), read.error().message.c_str());
    exit_code_ = 1;
  }
  const io::BlockStoreStats stats = store_->stats();
  std::printf("%s pages verify (%s); %s did not and were removed; %s could not be read\n",
              grouped_digits(good).c_str(), bytes_text(bytes).c_str(),
              grouped_digits(stats.corrupt).c_str(),
              grouped_digits(stats.read_errors + stats.deadlines).c_str());
}

void StoreTool::remove() {
  uint64_t removed = 0, bytes = 0;
  for (const io::StoredPage& page : pages()) {
    const bool wanted =
        options_.all ||
        (!options_.name_space.empty() &&
         namespace_id(page.name.space).starts_with(options_.name_space)) ||
        (!options_.model.empty() && model_id(page.name.space).starts_with(options_.model));
    if (!wanted) continue;
    ++removed;
    bytes += page.stored_bytes;
    store_->erase(page.slot, page.generation);
  }
  if (removed == 0 && !options_.all) return fail("no page is of that namespace or model (see ls)");
  std::printf("%s pages removed (%s)\n", grouped_digits(removed).c_str(),
              bytes_text(bytes).c_str());
}

}  // namespace

int store_command(const StoreOptions& options) {
  configure_log("warn");
  StoreTool tool(options);
  tool.loop().run(tool.run());
  return tool.exit_code();
}

}  // namespace spillway::server
