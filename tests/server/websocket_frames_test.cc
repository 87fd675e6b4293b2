// Frames as RFC 6455 has them, and as it forbids them, over a real socket (case H5).
#include <gtest/gtest.h>

#include <thread>

#include "server/server.h"
#include "tests/server/fake_model.h"
#include "tests/server/raw_client.h"

namespace spillway::server {
namespace {

constexpr int kContinuation = 0, kText = 1, kClose = 8, kPing = 9, kPong = 10;

struct FrameOptions {
  bool last = true;
  bool masked = true;
  int reserved = 0;                  // RSV bits, as the header's 0x70
  std::optional<uint64_t> claims{};  // a length in the header that is not the payload's
};

std::string frame(int opcode, std::string_view payload, const FrameOptions& options = {}) {
  std::string out(1, static_cast<char>((options.last ? 0x80 : 0) | options.reserved | opcode));
  const uint64_t length = options.claims.value_or(payload.size());
  const int mask_bit = options.masked ? 0x80 : 0;
  const int extra = length < 126 ? 0 : length < 65536 ? 2 : 8;
  out += static_cast<char>(mask_bit | (extra == 0   ? static_cast<int>(length)
                                       : extra == 2 ? 126
                                                    : 127));
  for (int i = extra - 1; i >= 0; --i) out += static_cast<char>(length >> (8 * i));
  const std::string_view mask = "\x11\x22\x33\x44";
  if (options.masked) out += mask;
  for (size_t i = 0; i < payload.size(); ++i) {
    out += static_cast<char>(options.masked ? payload[i] ^ mask[i % 4] : payload[i]);
  }
  return out;
}

struct Frame {
  int opcode = -1;  // -1: the connection ended
  std::string payload;
};

class Socket {
 public:
  explicit Socket(uint16_t port, const std::string& fields = "") : client_(port) {
    client_.send(
        std::string("GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
                    "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n") +
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" + fields + "\r\n");
    while (inbound_.find("\r\n\r\n") == std::string::npos && fill()) {
    }
    EXPECT_TRUE(inbound_.starts_with("HTTP/1.1 101")) << inbound_;
    EXPECT_NE(inbound_.find("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), std::string::npos);  // the RFC's
    const size_t end = inbound_.find("\r\n\r\n") + 4;
    head_ = inbound_.substr(0, end);
    inbound_.erase(0, end);
  }
  bool send(std::string_view bytes) { return client_.send(bytes); }
  Frame receive() {
    while (inbound_.size() < 2) {
      if (!fill()) return {};
    }
    EXPECT_EQ(inbound_[1] & 0x80, 0) << "a server does not mask";
    size_t length = static_cast<unsigned char>(inbound_[1]) & 0x7f;
    size_t head = 2;
    if (length == 126) {
      while (inbound_.size() < 4) {
        if (!fill()) return {};
      }
      length =
          static_cast<unsigned char>(inbound_[2]) * 256u + static_cast<unsigned char>(inbound_[3]);
      head = 4;
    }
    while (inbound_.size() < head + length) {
      if (!fill()) return {};
    }
    Frame out{.opcode = inbound_[0] & 0x0f, .payload = inbound_.substr(head, length)};
    inbound_.erase(0, head + length);
    return out;
  }
  // The close frame's code, of the next close frame.
  int close_code() {
    for (;;) {
      const Frame next = receive();
      if (next.opcode == -1) return -1;
      if (next.opcode != kClose) continue;
      if (next.payload.size() < 2) return 1005;
      return static_cast<unsigned char>(next.payload[0]) * 256 +
             static_cast<unsigned char>(next.payload[1]);
    }
  }
  RawClient& client() { return client_; }
  const std::string& head() const { return head_; }  // of the answer to the upgrade

 private:
  bool fill() {
    const std::string more = client_.receive();
    inbound_ += more;
    return !more.empty();
  }
  RawClient client_;
  std::string inbound_;
  std::string head_;
};

class WebSocketFrames : public testing::Test {
 protected:
  void SetUp() override { start({}); }
  void start(ServerOptions options) {
    options.port = 0;
    options.http.body_bytes = 100'000;
    options.write_limit = std::chrono::milliseconds(300);
    auto started = Server::start(options);
    ASSERT_TRUE(started) << started.error().message;
    server_ = std::move(*started);
    server_->set_model(make_fake_model(backend_));
  }
  uint16_t port() const { return server_->port(); }

  std::shared_ptr<FakeBackend> backend_ = std::make_shared<FakeBackend>();
  std::unique_ptr<Server> server_;
};

// case H5
TEST_F(WebSocketFrames, a_ping_between_fragments_is_answered_and_the_message_is_whole) {
  Socket socket(port());
  const std::string text = R"({"type":"response.create","input":"hi","max_output_tokens":2})";
  socket.send(frame(kText, text.substr(0, 10), {.last = false}) + frame(kPing, "are you there") +
              frame(kContinuation, text.substr(10, 1), {.last = false}) +
              frame(kContinuation, text.substr(11)));
  const Frame pong = socket.receive();
  EXPECT_EQ(pong.opcode, kPong);
  EXPECT_EQ(pong.payload, "are you there");
  const Frame created = socket.receive();
  EXPECT_EQ(created.opcode, kText);
  EXPECT_NE(created.payload.find("response.created"), std::string::npos) << created.payload;
}

// case H5
TEST_F(WebSocketFrames, a_close_is_answered_with_its_code) {
  Socket socket(port());
  socket.send(frame(kClose, std::string("\x03\xe8", 2)));
  EXPECT_EQ(socket.close_code(), 1000);
  EXPECT_TRUE(socket.client().closed_by_server());
}

// case H5
TEST_F(WebSocketFrames, forbidden_frames_end_the_connection_with_their_code) {
  const struct {
    const char* what;
    std::string wire;
    int code;
  } cases[] = {
      {"unmasked", frame(kText, "{}", {.masked = false}), 1002},
      {"reserved bit", frame(kText, "{}", {.reserved = 0x40}), 1002},

      {"reserved opcode", frame(3, "{}"), 1002},
      {"reserved control opcode", frame(11, ""), 1002},
      {"long ping", frame(kPing, std::string(126, 'x')), 1002},
      {"fragmented ping", frame(kPing, "x", {.last = false}), 1002},
      {"continuation of nothing", frame(kContinuation, "x"), 1002},
      {"text inside a message", frame(kText, "{", {.last = false}) + frame(kText, "}"), 1002},
      {"close of one byte", frame(kClose, "x"), 1002},
      {"close with a code nobody may send", frame(kClose, std::string("\x03\xed", 2)), 1002},
      {"invalid UTF-8", frame(kText, "\xc3\x28"), 1007},
      {"a code point cut short", frame(kText, "\xe2\x82"), 1007},
      {"a surrogate", frame(kText, "\xed\xa0\x80"), 1007},
      {"too long", frame(kText, "", {.claims = 100'001}), 1009},
      {"far too long", frame(kText, "", {.claims = uint64_t{1} << 62}), 1009},
      {"too long in pieces",
       frame(kText, std::string(60'000, 'x'), {.last = false}) +
           frame(kContinuation, std::string(60'000, 'x')),
       1009},
  };
  for (const auto& one : cases) {
    Socket socket(port());
    socket.send(one.wire);
    EXPECT_EQ(socket.close_code(), one.code) << one.what;
    EXPECT_TRUE(socket.client().closed_by_server()) << one.what;
  }
}

// case H5: what a client offers to compress is not agreed to, and a frame that is compressed all
// the same ends the connection.
TEST_F(WebSocketFrames, compression_is_not_agreed_to) {
  Socket socket(port(), "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n");
  EXPECT_EQ(socket.head().find("xtensions"), std::string::npos) << socket.head();
  socket.send(frame(kText, "{}"));
  EXPECT_NE(socket.receive().payload.find("error"), std::string::npos);
  socket.send(frame(kText, "\xaa\x05\x00", {.reserved = 0x40}));
  EXPECT_EQ(socket.close_code(), 1002);
}

TEST_F(WebSocketFrames, a_socket_ends_when_it_is_too_old) {
  ServerOptions options;
  options.socket_limit = std::chrono::milliseconds(150);
  start(options);
  backend_->first_ms = 5000;
  Socket socket(port());
  const auto begun = std::chrono::steady_clock::now();
  socket.send(frame(kText, R"({"type":"response.create","input":"hi"})"));
  Frame next;
  do {
    next = socket.receive();
  } while (next.payload.find("response.") != std::string::npos);
  EXPECT_NE(next.payload.find("websocket_connection_limit_reached"), std::string::npos)
      << next.payload;
  EXPECT_EQ(socket.close_code(), 1001);
  EXPECT_GE(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(140));
  for (int i = 0; i < 2000 && backend_->running > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(backend_->running, 0);
}

TEST_F(WebSocketFrames, how_a_request_goes_is_told_to_those_who_ask) {
  backend_->reports = 2;
  for (const bool asked : {true, false}) {
    Socket socket(port());
    socket.send(frame(kText, std::string(R"({"type":"response.create","input":"hi",)") +
                                 R"("max_output_tokens":2)" +
                                 (asked ? R"(,"return_progress":true})" : "}")));
    std::string all;
    int sequence = 0;
    while (all.find("\"response.incomplete\"") == std::string::npos) {
      const Frame next = socket.receive();
      ASSERT_EQ(next.opcode, kText) << all;
      EXPECT_NE(next.payload.find("\"sequence_number\":" + std::to_string(sequence++) + ","),
                std::string::npos)
          << next.payload;
      all += next.payload;
    }
    EXPECT_EQ(all.find("spillway:waiting") != std::string::npos, asked) << all;
    EXPECT_EQ(all.find("\"state\":\"loading\"") != std::string::npos, asked) << all;
  }
}

TEST_F(WebSocketFrames, a_message_that_begins_and_a_hint_bring_up_the_lanes_pages) {
  Socket socket(port());
  const auto answer = [&](const std::string& wire) {
    socket.send(wire);
    std::string all;
    while (all.find("\"response.incomplete\"") == std::string::npos) {
      const Frame next = socket.receive();
      ASSERT_EQ(next.opcode, kText) << all;
      all += next.payload;
    }
  };
  const auto asked_for = [&](size_t count) {
    for (int i = 0; i < 400 && backend_->prefetched().size() < count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return backend_->prefetched().size();
  };
  const std::string hint = frame(kText, R"({"type":"spillway:prefetch"})");
  socket.send(hint);  // there is no conversation yet
  const std::string turn = R"({"type":"response.create","input":"hi","max_output_tokens":2})";
  answer(frame(kText, turn));
  EXPECT_TRUE(backend_->prefetched().empty());
  socket.send(hint + hint);  // as one: they come too soon after each other
  EXPECT_EQ(asked_for(1), 1u);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(backend_->prefetched().size(), 1u);
  const std::string whole = frame(kText, turn);
  socket.send(whole.substr(0, 30));
  EXPECT_EQ(asked_for(2), 2u);
  answer(whole.substr(30));
  const auto sessions = backend_->prefetched();
  EXPECT_EQ(sessions[0], sessions[1]);
  EXPECT_EQ(backend_->seen().back().session, sessions[0]);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  socket.send(frame(kText, R"({"type":"spillway:prefetch","stream_id":7})"));
  EXPECT_NE(socket.receive().payload.find("stream_id"), std::string::npos);
  socket.send(frame(kText, R"({"type":"spillway:prefetch","stream_id":"other"})"));
  answer(frame(kText, turn));
  EXPECT_EQ(backend_->prefetched().size(), 2u);  // that lane has nothing
}

// case H3
TEST_F(WebSocketFrames, a_peer_that_does_not_read_is_given_up) {
  RawClient client(port(), 4096);
  client.send(
      "GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
      "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
  // Answers of together a few megabytes: less than the bounds on what may be queued.
  backend_->token_ms = 1;
  for (int lane = 0; lane < 16; ++lane) {
    client.send(frame(kText, R"({"type":"response.create","input":"hi","top_logprobs":20,)"
                             R"("include":["message.output_text.logprobs"],)"
                             R"("max_output_tokens":3000,"stream_id":")" +
                                 std::to_string(lane) + "\"}"));
  }
  // Lanes that came to their end before the deadline are not cancelled any more: on a slow machine
  // some do.
  const auto given_up = [this] { return backend_->cancelled > 0 && backend_->running == 0; };
  for (int i = 0; i < 6000 && !given_up(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_GT(backend_->cancelled, 0);
  EXPECT_EQ(backend_->running, 0);
}

}  // namespace
}  // namespace spillway::server
