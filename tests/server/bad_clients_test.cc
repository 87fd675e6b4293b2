// Clients that leave, stall, dribble, send what is no request or too much of it, or take every file
// descriptor: each costs the server a bounded time, and nobody else anything.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/server/raw_client.h"
#include "tests/server/server_fixture.h"

namespace spillway::server {
namespace {

using std::chrono::milliseconds;

class BadClients : public ServerTest {};

// case A4
TEST_F(BadClients, a_client_that_leaves_while_queued_or_decoding_is_cancelled) {
  start();
  for (const int first_ms : {60'000, 0}) {
    for (const char* stream : {"true", "false"}) {
      backend_->first_ms = first_ms;
      backend_->token_ms = 20;
      const int before = backend_->cancelled;
      RawClient client(port());
      const std::string body = chat("\"stream\":" + std::string(stream));
      client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: " +
                  std::to_string(body.size()) + "\r\n\r\n" + body);
      ASSERT_TRUE(eventually([&] { return backend_->running == 1; }));
      if (first_ms == 0) std::this_thread::sleep_for(milliseconds(50));
      client.close();
      EXPECT_TRUE(eventually([&] { return backend_->cancelled == before + 1; }));
    }
  }
}

// case H3
TEST_F(BadClients, a_reader_that_stops_reading_is_given_up) {
  ServerOptions options;
  options.write_limit = milliseconds(200);
  start(options);
  RawClient client(port(), 4096);
  const std::string body = chat(R"("stream":true,"max_tokens":4000,"n":16)");
  client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  backend_->token_ms = 1;
  EXPECT_TRUE(eventually([&] { return backend_->cancelled == 1; }));
}

// case H3
TEST_F(BadClients, slow_headers_and_bodies_meet_a_deadline) {
  ServerOptions options;
  options.head_limit = milliseconds(150);
  options.body_limit = milliseconds(150);
  options.idle_limit = milliseconds(300);
  start(options);
  RawClient idle(port());
  RawClient head(port());
  head.send("GET / HT");
  EXPECT_EQ(head.response().status, 408);
  EXPECT_TRUE(head.closed_by_server());
  RawClient body(port());
  body.send("POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{");
  EXPECT_EQ(body.response().status, 408);
  EXPECT_TRUE(body.closed_by_server());
  EXPECT_TRUE(idle.closed_by_server());
}

// case H3
TEST_F(BadClients, a_byte_now_and_then_does_not_move_the_deadline) {
  ServerOptions options;
  options.head_limit = milliseconds(200);
  start(options);
  RawClient client(port());
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100 && client.send("X"); ++i) {
    std::this_thread::sleep_for(milliseconds(20));
    if (std::chrono::steady_clock::now() - begin > milliseconds(1500)) break;
  }
  EXPECT_EQ(client.response().status, 408);
}

// case H2
TEST_F(BadClients, malformed_requests_get_400_and_the_connection_ends) {
  start();
  for (const char* wire :
       {"GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n"
        "\r\n0\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n",
        "GARBAGE\r\n\r\n", "GET / HTTP/1.1\nHost: a\n\n"}) {
    RawClient client(port());
    client.send(wire);
    const auto response = client.response();
    EXPECT_EQ(response.status, 400) << wire;
    EXPECT_EQ(response.fields.at("connection"), "close");
    EXPECT_TRUE(response.fields.contains("x-request-id"));
    EXPECT_TRUE(client.closed_by_server());
  }
}

// case H1
TEST_F(BadClients, a_body_too_large_is_refused_before_it_is_read) {
  ServerOptions options;
  options.http.body_bytes = 1000;
  start(options);
  RawClient client(port());
  client.send("POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n");
  EXPECT_EQ(client.response().status, 413);
}

// case H4. Not under UBSan: its vptr check opens a pipe to look at memory, which fails when there
// are no descriptors left, and then reports an error of its own making.
TEST_F(BadClients, out_of_file_descriptors_accept_backs_off_and_recovers) {
#if defined(__has_feature)
#if __has_feature(undefined_behavior_sanitizer)
  GTEST_SKIP() << "UBSan needs a file descriptor itself";
#endif
#endif
  start();
  const int first_free = dup(0);
  close(first_free);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{.rlim_cur = static_cast<rlim_t>(first_free) + 60, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<int> fillers;
  for (int fd = dup(0); fd >= 0; fd = dup(0)) fillers.push_back(fd);
  close(fillers.back());  // the client's own; none is left for the server's side
  fillers.pop_back();
  RawClient client(port());
  std::this_thread::sleep_for(milliseconds(300));
  for (int fd : fillers) close(fd);
  EXPECT_EQ(client.get("/health").status, 200);
  setrlimit(RLIMIT_NOFILE, &before);
  const auto metrics = client.get("/metrics").body;
  const std::string_view name = "\nspillway:connections_refused_total ";
  const size_t at = metrics.find(name);
  ASSERT_NE(at, metrics.npos);
  EXPECT_GT(std::atoi(metrics.c_str() + at + name.size()), 0);
}

}  // namespace
}  // namespace spillway::server
