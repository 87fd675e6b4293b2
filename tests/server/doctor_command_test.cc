// `spillway doctor` without a model, on the real disk: what it writes is gone, what is refused is
// said. With a model: tests/e2e/test_cli.py.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "tests/temporary_folder.h"

namespace {

using spillway::TemporaryFolder;

struct Outcome {
  int code = -1;
  std::string text;  // of both streams
};

constexpr const char* kNoModel = "SPILLWAY_CACHE=/nonexistent ";

Outcome doctor(const std::string& directory, const std::string& cage = "") {
  const std::string line = kNoModel + cage +
                           " " SPILLWAY_PROGRAM " doctor --seconds 2 --kv-nvme-dir " + directory +
                           " 2>&1 </dev/null";
  FILE* pipe = popen(line.c_str(), "r");
  Outcome outcome;
  char buffer[4096];
  while (const size_t got = fread(buffer, 1, sizeof buffer, pipe)) outcome.text.append(buffer, got);
  outcome.code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Doctor, measures_the_disk_and_leaves_nothing_on_it) {
  const TemporaryFolder folder;
  const Outcome outcome = doctor(folder.path());
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_TRUE(has(outcome.text, "Disk under " + folder.path())) << outcome.text;
  EXPECT_TRUE(has(outcome.text, "  threads           pages of 1.0 MiB: read ")) << outcome.text;
  EXPECT_TRUE(has(outcome.text, "memory copies")) << outcome.text;
  EXPECT_TRUE(has(outcome.text, "No model was given")) << outcome.text;
  EXPECT_TRUE(folder.empty());
}

// case S15
TEST(Doctor, says_that_io_uring_is_refused_and_measures_what_stands_in) {
  const TemporaryFolder folder;
  const Outcome outcome = doctor(folder.path(), SPILLWAY_REFUSE " EPERM");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_TRUE(has(outcome.text, "  - io_uring: ")) << outcome.text;
  EXPECT_FALSE(has(outcome.text, "  io_uring          pages of")) << outcome.text;
  EXPECT_TRUE(has(outcome.text, "  threads           pages of 1.0 MiB: read ")) << outcome.text;
}

TEST(Doctor, says_that_memory_is_no_disk) {
  struct statfs of{};
  if (statfs("/dev/shm", &of) != 0 || of.f_type != TMPFS_MAGIC || access("/dev/shm", W_OK) != 0) {
    GTEST_SKIP() << "no tmpfs at /dev/shm";
  }
  const Outcome outcome = doctor("/dev/shm");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_TRUE(has(outcome.text, "  - O_DIRECT: the file system under /dev/shm")) << outcome.text;
}

TEST(Doctor, names_a_directory_that_is_not_there_or_takes_no_file) {
  const Outcome none = doctor("/nonexistent/directory");
  EXPECT_EQ(none.code, 1);
  EXPECT_TRUE(has(none.text, "there is no directory /nonexistent/directory")) << none.text;
  EXPECT_TRUE(has(none.text, "--kv-nvme-dir")) << none.text;
  const Outcome refused = doctor("/proc");  // root may not write there either
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(has(refused.text, "cannot measure in /proc: ")) << refused.text;
}

TEST(Doctor, leaves_nothing_when_it_is_killed) {
  const TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    setenv("SPILLWAY_CACHE", "/nonexistent", 1);
    const int silent = open("/dev/null", O_RDWR);
    dup2(silent, STDOUT_FILENO);
    dup2(silent, STDERR_FILENO);
    execl(SPILLWAY_PROGRAM, "spillway", "doctor", "--kv-nvme-dir", folder.path().c_str(), nullptr);
    _exit(127);
  }
  // The file is there once the process has it open; measuring takes seconds from then on.
  const std::string files = "/proc/" + std::to_string(child) + "/fd";
  const auto measures = [&] {
    std::error_code ec;
    for (const auto& entry : std::filesystem::directory_iterator(files, ec)) {
      const std::string target = std::filesystem::read_symlink(entry, ec).string();
      if (has(target, ".spillway-doctor-") && has(target, "(deleted)")) return true;
    }
    return false;
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool seen = false;
  while (!seen && std::chrono::steady_clock::now() < end) {
    seen = measures();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(seen);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(folder.empty());
}

}  // namespace
