// A server on a port of its own with a fake model behind it, which must be idle when the test ends.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "server/server.h"
#include "tests/server/fake_model.h"

namespace spillway::server {

// Waits up to 10 s for `condition`.
template <class F>
bool eventually(F condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

class ServerTest : public testing::Test {
 protected:
  void start(ServerOptions options = {}) {
    options.port = 0;
    auto started = Server::start(options);
    ASSERT_TRUE(started) << started.error().message;
    server_ = std::move(*started);
    server_->set_model(make_fake_model(backend_));
  }
  uint16_t port() const { return server_->port(); }
  static std::string chat(const std::string& fields) {
    return R"({"messages":[{"role":"user","content":"hi"}])" +
           (fields.empty() ? "" : "," + fields) + "}";
  }
  void TearDown() override {
    // idle = baseline: whatever the test did, nothing is left running.
    EXPECT_TRUE(eventually([&] { return backend_->running == 0; }));
  }

  std::shared_ptr<FakeBackend> backend_ = std::make_shared<FakeBackend>();
  std::unique_ptr<Server> server_;
};

}  // namespace spillway::server
