// The built program: which twin runs where, and how the command line behaves.
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/wait.h>

#include <string>

namespace {

struct Ended {
  int exit_code = -1;
  std::string output;  // stdout and stderr
};

Ended run(const std::string& command) {
  Ended out;
  FILE* pipe = popen((command + " 2>&1 </dev/null").c_str(), "r");
  char bytes[4096];
  for (size_t count; (count = fread(bytes, 1, sizeof bytes, pipe)) > 0;) {
    out.output.append(bytes, count);
  }
  const int status = pclose(pipe);
  out.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return out;
}

// The port opens before the model is looked at, so a missing model ends the server just after.
const std::string kServe = SPILLWAY_PROGRAM " serve --port 0 --model /nonexistent.gguf";

// case S15
TEST(Twin, serves_by_epoll_where_io_uring_is_refused) {
  for (const char* code : {"EPERM", "ENOSYS", "ENOMEM"}) {
    const Ended refused = run(std::string(SPILLWAY_REFUSE) + " " + code + " " + kServe);
    EXPECT_NE(refused.output.find("network  epoll, listening on http://127.0.0.1:"),
              std::string::npos)
        << refused.output;
    EXPECT_NE(refused.output.find("/nonexistent.gguf"), std::string::npos);
    EXPECT_EQ(refused.exit_code, 1);
  }
}

// case S15
TEST(Twin, serves_by_io_uring_where_it_is_allowed) {
  const Ended allowed = run(kServe);
  if (run(std::string(SPILLWAY_PROGRAM "-epoll") + " version").exit_code != 0) GTEST_FAIL();
  if (allowed.output.find("network  epoll") != std::string::npos)
    GTEST_SKIP() << "io_uring refused";
  EXPECT_NE(allowed.output.find("network  io_uring"), std::string::npos) << allowed.output;
  EXPECT_EQ(allowed.exit_code, 1);
}

TEST(CommandLine, says_what_is_wrong_and_how_to_ask) {
  EXPECT_EQ(run(SPILLWAY_PROGRAM " version").exit_code, 0);
  EXPECT_EQ(run(SPILLWAY_PROGRAM " --help").exit_code, 0);
  EXPECT_EQ(run(SPILLWAY_PROGRAM).exit_code, 2);
  EXPECT_EQ(run(SPILLWAY_PROGRAM " fly").exit_code, 2);
  const Ended help = run(SPILLWAY_PROGRAM " serve --help");
  EXPECT_EQ(help.exit_code, 0);
  for (const char* flag : {"--model",
                           "--host",
                           "--port",
                           "--max-model-len",
                           "--max-num-seqs",
                           "--max-num-batched-tokens",
                           "--block-size",
                           "--kv-cache-dtype",
                           "--kv-device-size",
                           "--kv-cache-memory-bytes",
                           "--threads",
                           "--no-enable-prefix-caching",
                           "--api-key",
                           "--served-model-name",
                           "--seed",
                           "--chat-template",
                           "--ssl-certfile",
                           "--ssl-keyfile",
                           "--allowed-origins",
                           "--log-level"}) {
    EXPECT_NE(help.output.find(flag), std::string::npos) << flag;
  }
  const Ended size = run(SPILLWAY_PROGRAM " serve --kv-device-size 3X");
  EXPECT_EQ(size.exit_code, 2);
  EXPECT_NE(size.output.find("512M"), std::string::npos);
  const Ended host = run(SPILLWAY_PROGRAM " serve --host nowhere.example --port 0");
  EXPECT_EQ(host.exit_code, 1);
  EXPECT_NE(host.output.find("no IP address"), std::string::npos);
  const Ended tls = run(SPILLWAY_PROGRAM " serve --ssl-certfile x.pem --port 0");
  EXPECT_NE(tls.output.find("go together"), std::string::npos);
  EXPECT_EQ(run(SPILLWAY_PROGRAM " inspect /nonexistent.gguf").exit_code, 1);
}

}  // namespace
