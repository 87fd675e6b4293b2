#include "server/reset_cache.h"

#include "runtime/suspend.h"

namespace spillway::server {
namespace {

// Waits for the engine's call, which comes on its thread.
struct ResetOp {
  Backend& backend;
  uint64_t pages = 0;

  void start(Resumer resumer) {
    auto shared = std::make_shared<Resumer>(std::move(resumer));
    backend.reset_prefix_cache([this, shared](uint64_t count) {
      pages = count;
      shared->resume();
    });
  }
};

}  // namespace

Task<Answer> reset_cache(std::shared_ptr<Backend> backend) {
  ResetOp op{*backend};
  co_await suspend(op);
  co_return Response{.body = "{\"status\":\"ok\",\"pages\":" + std::to_string(op.pages) + "}"};
}

}  // namespace spillway::server
