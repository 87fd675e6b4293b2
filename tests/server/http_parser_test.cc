#include "server/http_parser.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace spillway::server {
namespace {

// Feeds `wire` in pieces of `step` bytes, as a session does. 0: accepted whole; else the status;
// -1: still waiting for more.
int outcome(std::string_view wire, size_t step, std::string* body = nullptr,
            const HttpLimits& limits = {}) {
  HttpParser parser(limits);
  std::string buffer;
  for (size_t at = 0;; at += step) {
    const bool more = at < wire.size();
    if (more) buffer += wire.substr(at, step);
    while (parser.state() == HttpParser::State::kHead ||
           parser.state() == HttpParser::State::kBody) {
      const auto before = parser.state();
      const size_t used = buffer.empty() ? 0 : parser.put(buffer);
      buffer.erase(0, used);
      if (used == 0 && parser.state() == before) break;
    }
    if (parser.state() == HttpParser::State::kFailed) return parser.error().status;
    if (parser.state() == HttpParser::State::kDone) {
      if (body != nullptr) *body = parser.take_body();
      return 0;
    }
    if (!more) return -1;
  }
}

// However it is cut.
int outcome(std::string_view wire) {
  const int whole = outcome(wire, wire.size() + 1);
  for (size_t step = 1; step < std::min<size_t>(wire.size(), 200); ++step) {
    EXPECT_EQ(outcome(wire, step), whole) << "in pieces of " << step << ": " << wire;
  }
  return whole;
}

TEST(HttpParser, reads_requests_whole_or_byte_by_byte) {
  const std::string chunked =
      "POST /x?y=1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"
      "3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\n";
  for (const size_t step : {1u, 2u, 7u, 1000u}) {
    std::string body;
    EXPECT_EQ(outcome("GET / HTTP/1.1\r\nHost: a\r\n\r\n", step), 0);
    EXPECT_EQ(outcome("\r\nGET / HTTP/1.0\r\n\r\n", step), 0);
    EXPECT_EQ(outcome("POST / HTTP/1.1\r\nhost: a:80\r\ncontent-length: 3\r\n\r\nabc", step, &body),
              0);
    EXPECT_EQ(body, "abc");
    EXPECT_EQ(outcome(chunked, step, &body), 0);
    EXPECT_EQ(body, "abcde");
  }
}

// A person types a request line by line; proxies cut anywhere.
TEST(HttpParser, reads_the_same_wherever_it_is_cut) {
  const std::string wires[] = {
      "GET / HTTP/1.0\r\n\r\n",
      "\r\nGET / HTTP/1.1\r\nHost: a\r\nAccept: b\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n\nb\r\n\r\n\r\n\n",
  };
  for (const auto& wire : wires) {
    std::string whole_body;
    ASSERT_EQ(outcome(wire, wire.size(), &whole_body), 0) << wire;
    for (size_t step = 1; step < wire.size(); ++step) {
      std::string body;
      EXPECT_EQ(outcome(wire, step, &body), 0) << "in pieces of " << step << ": " << wire;
      EXPECT_EQ(body, whole_body) << "in pieces of " << step << ": " << wire;
    }
  }
}

// case H2
TEST(HttpParser, refuses_what_lets_requests_be_smuggled) {
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\n";
  const struct {
    std::string wire;
    int status;
  } cases[] = {
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
      {post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {post + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400},
      {post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 400},
      {post + "Content-Length: 3, 3\r\n\r\nabc", 400},
      {post + "Content-Length: +3\r\n\r\nabc", 400},
      {post + "Content-Length: -1\r\n\r\n", 400},
      {post + "Content-Length: 99999999999999999999999\r\n\r\n", 400},
      {post + "Transfer-Encoding: gzip\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked, gzip\r\n\r\n", 400},
      {post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\n-1\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n", 400},
      {"GET / HTTP/1.1\nHost: a\n\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\n\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n", 400},
      {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"G\x01T / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
      {"GET / HTTX/1.1\r\nHost: a\r\n\r\n", 505},
  };
  for (const auto& c : cases) EXPECT_EQ(outcome(c.wire), c.status) << c.wire;
}

// case H1
TEST(HttpParser, bounds_header_body_and_chunk_overhead) {
  const HttpLimits limits{.head_bytes = 1024, .body_bytes = 100};
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\n";
  EXPECT_EQ(outcome(post + "X: " + std::string(2000, 'x') + "\r\n\r\n", 10'000, nullptr, limits),
            431);
  EXPECT_EQ(outcome(post + "X: " + std::string(2000, 'x'), 1, nullptr, limits), 431);
  std::string many = post;
  for (int i = 0; i < 200; ++i) many += "A: b\r\n";
  EXPECT_EQ(outcome(many + "\r\n"), 431);
  // In pieces of 16 bytes, each the end of a line and the next one's first byte: so all are taken.
  std::string lines = "PU / HTTP/1.0\r\n";
  for (int i = 0; i < 100; ++i) lines += "Abcd: 12345678\r\n";
  EXPECT_EQ(outcome(lines, 16, nullptr, limits), 431);
  EXPECT_EQ(outcome(post + "Content-Length: 101\r\n\r\n", 50, nullptr, limits), 413);
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(outcome(chunked + "65\r\n", 50, nullptr, limits), 413);
  std::string ones = chunked;
  for (int i = 0; i < 90; ++i) ones += "1\r\nx\r\n";
  EXPECT_EQ(outcome(ones + "0\r\n\r\n", 3, nullptr, limits), 0);
  const std::string trailers = chunked + "1\r\nx\r\n0\r\n";
  std::string endless = trailers;
  for (int i = 0; i < 20'000; ++i) endless += "Trailer-Field: x\r\n";
  EXPECT_EQ(outcome(endless, 4096), 400);
  EXPECT_EQ(outcome(chunked + "1;" + std::string(100'000, 'e'), 4096), 400);
}

TEST(HttpParser, tells_whether_the_connection_goes_on) {
  const auto keep = [](const std::string& wire) {
    HttpParser parser({});
    parser.put(wire);
    EXPECT_EQ(parser.state(), HttpParser::State::kDone);
    return parser.head().keep_alive;
  };
  EXPECT_TRUE(keep("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_FALSE(keep("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
  EXPECT_FALSE(keep("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(keep("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
}

}  // namespace
}  // namespace spillway::server
