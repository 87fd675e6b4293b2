// The server over real sockets, with a fake model behind it.
#include "server/server.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <map>
#include <thread>

#include "tests/server/raw_client.h"
#include "tests/server/server_fixture.h"

namespace spillway::server {
namespace {

using std::chrono::milliseconds;

TEST_F(ServerTest, answers_chat_whole_and_streamed) {
  start();
  RawClient client(port());
  auto whole = client.post("/v1/chat/completions", chat(R"("max_tokens":3)"));
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_TRUE(whole.fields.contains("x-request-id"));
  EXPECT_EQ(whole.fields["content-type"], "application/json");
  const auto body = boost::json::parse(whole.body);
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content").as_string(), "a b");
  auto stream = client.post("/v1/chat/completions", chat(R"("max_tokens":3,"stream":true)"));
  EXPECT_EQ(stream.status, 200);
  EXPECT_TRUE(stream.fields["content-type"].starts_with("text/event-stream"));
  EXPECT_TRUE(stream.whole);
  EXPECT_TRUE(stream.body.ends_with("data: [DONE]\n\n"));
}

// What waits is told of in comments, which clients of event streams skip.
TEST_F(ServerTest, a_stream_says_in_comments_how_its_request_goes) {
  backend_->reports = 2;
  start();
  RawClient client(port());
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/responses"}) {
    const bool is_chat = std::string_view(path).ends_with("chat/completions");
    const bool is_completion = !is_chat && std::string_view(path).ends_with("completions");
    const std::string input = is_chat
                                  ? R"("messages":[{"role":"user","content":"hi"}],"max_tokens":3)"
                              : is_completion ? R"("prompt":"hi","max_tokens":3)"
                                              : R"("input":"hi","max_output_tokens":3)";
    const auto stream = client.post(path, "{" + input + R"(,"stream":true})");
    EXPECT_EQ(stream.status, 200);
    size_t comments = 0;
    for (size_t at = 0;
         (at = stream.body.find(": spillway {\"state\":\"loading\"", at)) != std::string::npos;
         ++at) {
      EXPECT_TRUE(at == 0 || stream.body[at - 1] == '\n');
      ++comments;
    }
    EXPECT_EQ(comments, 2u) << stream.body;
    const auto whole = client.post(path, "{" + input + "}");
    EXPECT_EQ(whole.body.find(": spillway"), std::string::npos);
  }
}

TEST_F(ServerTest, prefixes_are_pinned_listed_and_let_go) {
  start();
  RawClient client(port());
  const std::string body = R"({"prompt":")" + std::string(40, 'x') + R"(","ttl":60})";
  const auto made = client.post("/v1/cache/pins", body);
  ASSERT_EQ(made.status, 200) << made.body;
  const std::string id(boost::json::parse(made.body).at("id").as_string());
  const auto list = boost::json::parse(client.get("/v1/cache/pins").body);
  ASSERT_EQ(list.at("data").as_array().size(), 1u);
  EXPECT_EQ(list.at("data").at(0).at("id").as_string(), id);
  EXPECT_EQ(list.at("limit_pages").as_int64(), 25);
  EXPECT_EQ(client.get("/v1/cache/pins/" + id).status, 200);
  EXPECT_EQ(client.get("/v1/cache/pins/pin_none").status, 404);
  const auto remove = [&](const std::string& name) {
    client.send("DELETE /v1/cache/pins/" + name + " HTTP/1.1\r\nHost: a\r\n\r\n");
    return client.response().status;
  };
  EXPECT_EQ(remove(id), 200);
  EXPECT_EQ(remove(id), 404);
  client.send("DELETE /v1/cache/pins HTTP/1.1\r\nHost: a\r\n\r\n");
  auto wrong = client.response();
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.fields["allow"], "GET, HEAD, POST");
  backend_->pin_result = static_cast<int>(scheduler::PinResult::kNoRoom);
  const auto full = client.post("/v1/cache/pins", body);
  EXPECT_EQ(full.status, 409);
  EXPECT_NE(full.body.find("pin_limit_reached"), std::string::npos) << full.body;
}

// cases I1, I3
TEST_F(ServerTest, pins_are_their_own_keys_alone) {
  start({.api_keys = {"one", "two"}});
  RawClient client(port());
  const std::string one = "Authorization: Bearer one\r\n", two = "Authorization: Bearer two\r\n";
  const std::string body = R"({"prompt":")" + std::string(40, 'x') + R"("})";
  EXPECT_EQ(RawClient(port()).post("/v1/cache/pins", body).status, 401);
  const auto made = client.post("/v1/cache/pins", body, one);
  ASSERT_EQ(made.status, 200) << made.body;
  const std::string id(boost::json::parse(made.body).at("id").as_string());
  EXPECT_EQ(client.get("/v1/cache/pins/" + id).status, 401);
  EXPECT_EQ(client.get("/v1/cache/pins/" + id, one).status, 200);
  EXPECT_EQ(client.get("/v1/cache/pins/" + id, two).status, 404);
  EXPECT_EQ(client.get("/v1/cache/pins", two).body.find(id), std::string::npos);
  client.send("DELETE /v1/cache/pins/" + id + " HTTP/1.1\r\nHost: a\r\n" + two + "\r\n");
  EXPECT_EQ(client.response().status, 404);
}

TEST_F(ServerTest, a_timeout_reaches_the_engine_as_a_deadline) {
  start();
  RawClient client(port());
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(client.post("/v1/chat/completions", chat(R"("max_tokens":1,"timeout":2.5)")).status,
            200);
  const auto seen = backend_->seen();
  ASSERT_EQ(seen.size(), 1u);
  ASSERT_TRUE(seen[0].deadline);
  const auto time = *seen[0].deadline - before;
  EXPECT_GE(time, milliseconds(2490));
  EXPECT_LE(time, milliseconds(7500));
  for (const char* wrong : {"0", "-1", "1e9", "\"soon\""}) {
    const auto refused =
        client.post("/v1/chat/completions", chat(std::string(R"("timeout":)") + wrong));
    EXPECT_EQ(refused.status, 400) << wrong;
    EXPECT_NE(refused.body.find("\"param\":\"timeout\""), std::string::npos) << refused.body;
  }
}

// case A12
TEST_F(ServerTest, health_is_503_until_the_model_is_there) {
  ServerOptions options;
  options.port = 0;
  auto started = Server::start(options);
  ASSERT_TRUE(started);
  server_ = std::move(*started);
  RawClient client(port());
  EXPECT_EQ(client.get("/health").status, 503);
  const auto early = client.post("/v1/chat/completions", chat(""));
  EXPECT_EQ(early.status, 503);
  EXPECT_TRUE(early.fields.contains("retry-after"));
  EXPECT_EQ(client.get("/metrics").status, 200);
  server_->set_model(make_fake_model(backend_));
  EXPECT_EQ(client.get("/health").status, 200);
}

TEST_F(ServerTest, routes_answer_and_say_what_is_wrong) {
  start();
  RawClient client(port());
  EXPECT_EQ(client.get("/v1/models").status, 200);
  EXPECT_EQ(client.get("/v1/models/fake").status, 200);
  EXPECT_EQ(client.get("/v1/models/fake%2Dalias").status, 200);
  EXPECT_EQ(client.get("/v1/models/none").status, 404);
  EXPECT_EQ(client.get("/version").status, 200);
  EXPECT_EQ(client.get("/nowhere").status, 404);
  auto wrong = client.get("/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.fields["allow"], "POST");
  auto tokens = client.post("/tokenize", R"({"prompt":"ab"})");
  EXPECT_NE(tokens.body.find("\"tokens\":[256,97,98]"), std::string::npos) << tokens.body;
  EXPECT_NE(tokens.body.find("\"count\":3"), std::string::npos);
  EXPECT_NE(client.post("/tokenize", R"({"content":"ab"})").body.find("[97,98]"),
            std::string::npos);
  EXPECT_NE(client.post("/detokenize", R"({"tokens":[97,98]})").body.find("\"ab\""),
            std::string::npos);
  EXPECT_NE(client.post("/reset_prefix_cache", "").body.find("40"), std::string::npos);
  EXPECT_EQ(client.post("/flush_cache", "{}").status, 200);
  const auto metrics = client.get("/metrics");
  EXPECT_NE(metrics.body.find("vllm:num_requests_running"), std::string::npos);
  EXPECT_NE(metrics.body.find("spillway:kv_pages{"), std::string::npos);
  EXPECT_NE(client.get("/debug/cache").body.find("\"sealed\":40"), std::string::npos);
  client.send("HEAD /health HTTP/1.1\r\nHost: a\r\n\r\nGET /version HTTP/1.1\r\nHost: a\r\n\r\n");
  std::string both;
  while (both.find("network") == both.npos) both += client.receive();
  EXPECT_EQ(both.find("status"), both.npos);  // HEAD has no body
}

TEST_F(ServerTest, errors_carry_param_and_code_and_keep_the_connection) {
  start();
  RawClient client(port());
  const auto response = client.post("/v1/chat/completions", chat(R"("n":0)"));
  EXPECT_EQ(response.status, 400);
  const auto error = boost::json::parse(response.body).at("error");
  EXPECT_EQ(error.at("param").as_string(), "n");
  EXPECT_EQ(error.at("type").as_string(), "invalid_request_error");
  EXPECT_TRUE(error.at("code").is_null());
  EXPECT_EQ(client.get("/health").status, 200);
  backend_->full = true;
  const auto busy = client.post("/v1/chat/completions", chat(""));
  EXPECT_EQ(busy.status, 429);
  EXPECT_TRUE(busy.fields.contains("retry-after"));
}

TEST_F(ServerTest, pipelined_requests_are_answered_in_order) {
  start();
  backend_->first_ms = 50;
  RawClient client(port());
  const std::string body = chat(R"("max_tokens":1)");
  client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body +
              "GET /version HTTP/1.1\r\nHost: a\r\n\r\n" +
              "GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_NE(client.response().body.find("chat.completion"), std::string::npos);
  EXPECT_NE(client.response().body.find("version"), std::string::npos);
  EXPECT_NE(client.response().body.find("ok"), std::string::npos);
}

TEST_F(ServerTest, expect_continue_is_answered) {
  start();
  RawClient client(port());
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 15\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.response().status, 100);
  client.send(R"({"prompt":"ab"})");
  EXPECT_EQ(client.response().status, 200);
}

// case A3
TEST_F(ServerTest, an_error_midway_is_one_event_and_the_end) {
  start();
  backend_->fail_after_tokens = 2;
  RawClient client(port());
  auto stream = client.post("/v1/chat/completions", chat(R"("stream":true)"));
  EXPECT_TRUE(stream.whole);
  const size_t at = stream.body.find("data: {\"error\":{");
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(stream.body.find("data:", at + 1), std::string::npos);
  backend_->fail_after_tokens = 0;
  EXPECT_EQ(client.post("/v1/chat/completions", chat("")).status, 500);
}

TEST_F(ServerTest, debug_trace_answers_with_a_timeline) {
  start();
  RawClient client(port());
  const auto before = std::chrono::steady_clock::now();
  auto reply = client.get("/debug/trace?seconds=0.2");
  EXPECT_GE(std::chrono::steady_clock::now() - before, milliseconds(200));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.fields["content-type"], "application/json");
  EXPECT_NE(reply.fields["content-disposition"].find("attachment"), std::string::npos);
  const auto body = boost::json::parse(reply.body);
  std::map<std::string, double> began_us;
  for (const auto& event : body.at("traceEvents").as_array()) {
    if (event.at("ph").as_string() != "X") continue;
    began_us[event.at("name").as_string().c_str()] = event.at("ts").to_number<double>();
  }
  EXPECT_EQ(began_us, (std::map<std::string, double>{{"read", 0}, {"decode", 1000}}));
  for (const char* wrong : {"0", "-1", "61", "abc", "", "1s", "nan", "5&what=1"}) {
    const auto refused = client.get(std::string("/debug/trace?seconds=") + wrong);
    EXPECT_EQ(refused.status, 400) << wrong;
    EXPECT_NE(refused.body.find("seconds=5"), std::string::npos) << refused.body;
  }
  EXPECT_EQ(client.post("/debug/trace", "").status, 405);
  EXPECT_EQ(backend_->traces_begun, 1);
  EXPECT_EQ(backend_->traces_taken, 1);
}

TEST_F(ServerTest, a_trace_ends_when_the_server_drains) {
  start();
  RawClient clients[5] = {RawClient(port()), RawClient(port()), RawClient(port()),
                          RawClient(port()), RawClient(port())};
  for (int i = 0; i < 4; ++i) {
    clients[i].send("GET /debug/trace?seconds=60 HTTP/1.1\r\nHost: a\r\n\r\n");
    ASSERT_TRUE(eventually([&] { return backend_->traces_begun == i + 1; }));
  }
  EXPECT_EQ(clients[4].get("/debug/trace?seconds=60").status, 429);  // a bound
  const auto before = std::chrono::steady_clock::now();
  server_->drain(std::chrono::seconds(30));
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(10));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(clients[i].response().status, 200);
  EXPECT_EQ(backend_->traces_taken, 4);
}

TEST_F(ServerTest, a_trace_ends_when_its_client_leaves) {
  start();
  for (int i = 0; i < 6; ++i) {  // more than may be recorded at a time
    RawClient client(port());
    client.send("GET /debug/trace?seconds=60 HTTP/1.1\r\nHost: a\r\n\r\n");
    ASSERT_TRUE(eventually([&] { return backend_->traces_begun == i + 1; }));
    client.close();
    ASSERT_TRUE(eventually([&] { return backend_->traces_taken == i + 1; }));
  }
  EXPECT_EQ(RawClient(port()).get("/debug/trace?seconds=0.01").status, 200);
}

// case I4
TEST_F(ServerTest, a_trace_is_its_own_tenants_where_there_are_several) {
  start({.api_keys = {"one", "two"}});
  RawClient client(port());
  for (const char* key : {"one", "two", "two"}) {
    const auto reply = client.get("/debug/trace?seconds=0.01",
                                  "Authorization: Bearer " + std::string(key) + "\r\n");
    EXPECT_EQ(reply.status, 200);
  }
  const auto tenants = backend_->trace_tenants();
  ASSERT_EQ(tenants.size(), 3u);
  ASSERT_TRUE(tenants[0] && tenants[1] && tenants[2]);
  EXPECT_NE(*tenants[0], *tenants[1]);
  EXPECT_EQ(*tenants[1], *tenants[2]);
}

TEST_F(ServerTest, a_trace_shows_all_where_there_is_one_key) {
  start({.api_keys = {"one"}});
  RawClient client(port());
  EXPECT_EQ(client.get("/debug/trace?seconds=0.01", "Authorization: Bearer one\r\n").status, 200);
  EXPECT_EQ(backend_->trace_tenants(), (std::vector<std::optional<std::string>>{std::nullopt}));
}

// case I3
TEST_F(ServerTest, every_route_but_health_needs_a_key) {
  ServerOptions options;
  options.api_keys = {"sk-one", "sk-two"};
  start(options);
  RawClient client(port());
  EXPECT_EQ(client.get("/health").status, 200);
  // No way around the key by asking for a WebSocket where none is needed.
  const std::string upgrade =
      "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
  EXPECT_EQ(client.get("/health", upgrade).status, 200);
  EXPECT_EQ(client.get("/v1/responses", upgrade).status, 401);
  for (const char* path : {"/version", "/metrics", "/v1/models", "/debug/cache",
                           "/debug/trace?seconds=0.01", "/nowhere"}) {
    EXPECT_EQ(client.get(path).status, 401) << path;
    EXPECT_EQ(client.get(path, "Authorization: Bearer sk-on\r\n").status, 401) << path;
    EXPECT_NE(client.get(path, "Authorization: Bearer sk-one\r\n").status, 401) << path;
    EXPECT_NE(client.get(path, "Authorization: Basic dTpzay10d28=\r\n").status, 401) << path;
  }
  client.post("/v1/completions", R"({"prompt":"a","max_tokens":1})",
              "Authorization: Bearer sk-one\r\n");
  client.post("/v1/completions", R"({"prompt":"a","max_tokens":1})", "x-api-key: sk-two\r\n");
  const auto seen = backend_->seen();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_NE(seen[0].tenant, seen[1].tenant);
}

// case I4
TEST_F(ServerTest, foreign_pages_are_refused_unless_allowed) {
  ServerOptions options;
  options.allowed_origins = {"https://chat.example"};
  start(options);
  RawClient client(port());
  EXPECT_EQ(client.get("/v1/models", "Origin: https://evil.example\r\n").status, 403);
  EXPECT_EQ(client.get("/v1/models", "Origin: null\r\n").status, 403);
  EXPECT_EQ(client.get("/v1/models", "Origin: http://localhost\r\n").status, 200);
  auto allowed = client.get("/v1/models", "Origin: https://chat.example\r\n");
  EXPECT_EQ(allowed.status, 200);
  EXPECT_EQ(allowed.fields["access-control-allow-origin"], "https://chat.example");
  client.send("OPTIONS /v1/models HTTP/1.1\r\nHost: a\r\nOrigin: https://chat.example\r\n\r\n");
  EXPECT_EQ(client.response().status, 204);
  // A name that an attacker's DNS points here is no origin of ours.
  client.send(
      "GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n\r\n");
  EXPECT_EQ(client.response().status, 403);
}

// case A12
TEST_F(ServerTest, drain_lets_answers_end_and_closes_the_idle) {
  start();
  backend_->token_ms = 20;
  RawClient idle(port());
  RawClient client(port());
  const std::string body = chat(R"("stream":true,"max_tokens":10)");
  client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  ASSERT_TRUE(eventually([&] { return backend_->running == 1; }));
  std::thread drain([&] { server_->drain(std::chrono::seconds(20)); });
  EXPECT_TRUE(idle.closed_by_server());
  const auto response = client.response();
  EXPECT_TRUE(response.whole);
  EXPECT_TRUE(response.body.ends_with("[DONE]\n\n"));
  EXPECT_TRUE(client.closed_by_server());
  client.close();
  drain.join();
}

// case A12
TEST_F(ServerTest, drain_ends_endless_answers_with_an_error) {
  start();
  backend_->token_ms = 5;
  RawClient client(port());
  const std::string body = chat(R"("stream":true,"max_tokens":4000)");
  client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  ASSERT_TRUE(eventually([&] { return backend_->running == 1; }));
  std::thread drain([&] { server_->drain(milliseconds(100)); });
  const auto response = client.response();
  EXPECT_TRUE(response.whole);
  EXPECT_NE(response.body.find("shutting down"), std::string::npos);
  client.close();
  drain.join();
  EXPECT_TRUE(eventually([&] { return backend_->cancelled == 1; }));
}

// case A12
TEST_F(ServerTest, drain_does_not_wait_for_readers_that_do_not_read) {
  start();
  RawClient client(port(), 4096);
  const std::string body = chat(R"("stream":true,"max_tokens":4000,"n":16)");
  client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  ASSERT_TRUE(eventually([&] { return backend_->running == 1; }));
  std::this_thread::sleep_for(milliseconds(200));
  const auto begin = std::chrono::steady_clock::now();
  server_->drain(milliseconds(50));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

TEST_F(ServerTest, many_clients_stream_and_leave_and_nothing_is_left) {
  start();
  backend_->token_ms = 1;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 40; ++i) {
      auto client = std::make_unique<RawClient>(port());
      const std::string body = chat(R"("stream":true,"max_tokens":200)");
      client->send("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: " +
                   std::to_string(body.size()) + "\r\n\r\n" + body);
      clients.push_back(std::move(client));
    }
    for (size_t i = 0; i < clients.size(); ++i) {
      if (i % 2 == 0) {
        clients[i]->close();
      } else {
        EXPECT_TRUE(clients[i]->response().body.ends_with("[DONE]\n\n"));
      }
    }
  }
}

TEST_F(ServerTest, http10_streams_until_the_connection_closes) {
  start();
  RawClient client(port());
  const std::string body = chat(R"("stream":true,"max_tokens":3)");
  client.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  const std::string all = client.rest();
  EXPECT_NE(all.find("connection: close"), all.npos);
  EXPECT_EQ(all.find("chunked"), all.npos);
  EXPECT_TRUE(all.ends_with("[DONE]\n\n"));
}

}  // namespace
}  // namespace spillway::server
