// `spillway store` as a person meets it: the built program on a store that this test has filled.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "tests/io/ring_under_test.h"
#include "tests/io/store_fixture.h"

namespace spillway::server {
namespace {

using io::BlockStore;
using io::TestPage;

constexpr uint64_t kBytes = 300 * io::kSectorBytes;

struct Outcome {
  int code;
  std::string text;  // of both streams
};

std::string identity(const std::string& model, const std::string& tenant, const std::string& salt) {
  std::string out;
  for (const std::string& part : {model, tenant, salt}) {
    const uint64_t bytes = part.size();
    out.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    out += part;
  }
  return out;
}

class StoreCommand : public testing::Test {
 protected:
  StoreCommand() : under_test_(io::make_ring_under_test("threads")) {
    auto options = io::store_options(kBytes, {2 * io::kSectorBytes});
    options.directory = directory_.path();
    options.seed.reset();
    std::optional<Result<std::unique_ptr<BlockStore>>> opened;
    under_test_->loop().run(io::store_result(
        BlockStore::open(options, under_test_->loop(), under_test_->ring()), &opened));
    store_ = std::move(**opened);
    for (uint64_t i = 0; i < 12; ++i) {
      const TestPage page(i, 2 * io::kSectorBytes,
                          i < 8 ? identity("aaaa1111", "tenant-name", "secret-salt")
                                : identity("bbbb2222", "", ""));
      std::optional<Result<io::StoredPage>> put;
      under_test_->loop().run(io::store_result(
          store_->put(page.name(), page.payload(), page.bytes.owner(), under_test_->stop), &put));
      CHECK(put->has_value());
    }
  }
  ~StoreCommand() override { close(); }
  void close() {
    if (store_ == nullptr) return;
    under_test_->loop().run(store_->close());
    store_.reset();
  }
  Outcome spillway(const std::string& arguments) {
    const std::string line = std::string(SPILLWAY_PROGRAM) + " store " + arguments +
                             " --kv-nvme-dir " + directory_.path() + " 2>&1";
    FILE* pipe = popen(line.c_str(), "r");
    CHECK(pipe != nullptr);
    Outcome outcome{0, ""};
    char buffer[4096];
    while (const size_t got = fread(buffer, 1, sizeof buffer, pipe))
      outcome.text.append(buffer, got);
    outcome.code = WEXITSTATUS(pclose(pipe));
    return outcome;
  }

  io::TestDirectory directory_;
  std::unique_ptr<io::RingUnderTest> under_test_;
  std::unique_ptr<BlockStore> store_;
};

// case S12
TEST_F(StoreCommand, is_refused_with_the_pid_while_a_server_has_the_store) {
  for (const char* action : {"ls", "stats", "verify", "rm --all"}) {
    const Outcome outcome = spillway(action);
    EXPECT_EQ(outcome.code, 1);
    EXPECT_NE(outcome.text.find(std::to_string(getpid())), std::string::npos) << outcome.text;
  }
}

// case I4
TEST_F(StoreCommand, lists_models_and_namespaces_without_saying_whose) {
  close();
  const Outcome list = spillway("ls");
  EXPECT_EQ(list.code, 0) << list.text;
  EXPECT_NE(list.text.find("aaaa1111"), std::string::npos) << list.text;
  EXPECT_NE(list.text.find("bbbb2222"), std::string::npos) << list.text;
  EXPECT_EQ(list.text.find("tenant-name"), std::string::npos);
  EXPECT_EQ(list.text.find("secret-salt"), std::string::npos);
  const Outcome stats = spillway("stats");
  EXPECT_EQ(stats.code, 0) << stats.text;
  EXPECT_NE(stats.text.find("pages        12\n"), std::string::npos) << stats.text;
  EXPECT_NE(stats.text.find("namespaces   2\n"), std::string::npos) << stats.text;
}

TEST_F(StoreCommand, verify_finds_a_damaged_page_and_removes_it) {
  const uint64_t area = kBytes - store_->stats().capacity_bytes;
  close();
  EXPECT_EQ(spillway("verify").code, 0);
  {
    std::fstream file(directory_ / "pages.kv", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(area + 3 * io::kSectorBytes + 100));
    file.put('?');
  }
  const Outcome found = spillway("verify");
  EXPECT_EQ(found.code, 1);
  EXPECT_NE(found.text.find("11 pages verify"), std::string::npos) << found.text;
  const Outcome again = spillway("verify");
  EXPECT_EQ(again.code, 0);
  EXPECT_NE(again.text.find("11 pages verify"), std::string::npos) << again.text;
}

TEST_F(StoreCommand, rm_removes_what_it_was_told_and_nothing_else) {
  close();
  EXPECT_EQ(spillway("rm").code, 2);  // say which
  EXPECT_EQ(spillway("rm --of-model nothing").code, 1);
  const Outcome removed = spillway("rm --of-model aaaa");
  EXPECT_EQ(removed.code, 0);
  EXPECT_NE(removed.text.find("8 pages removed"), std::string::npos) << removed.text;
  const std::string list = spillway("ls").text;
  EXPECT_EQ(list.find("aaaa1111"), std::string::npos);
  const size_t id = list.find("bbbb2222") + std::string("bbbb2222      ").size();
  EXPECT_EQ(spillway("rm --namespace " + list.substr(id, 6)).code, 0) << list;
  EXPECT_NE(spillway("stats").text.find("pages        0\n"), std::string::npos);
}

// case S14: a tool makes nothing and sets nothing aside.
TEST_F(StoreCommand, leaves_a_damaged_store_and_an_empty_directory_as_they_are) {
  close();
  {
    std::fstream file(directory_ / "pages.kv", std::ios::in | std::ios::out | std::ios::binary);
    file << std::string(2 * io::kSectorBytes, 'x');
  }
  EXPECT_EQ(spillway("ls").code, 1);
  EXPECT_TRUE(std::filesystem::exists(directory_ / "pages.kv"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "pages.kv.old"));
  std::filesystem::remove(directory_ / "pages.kv");
  const Outcome none = spillway("ls");
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.text.find("no store"), std::string::npos) << none.text;
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

}  // namespace
}  // namespace spillway::server
