#include "server/pins.h"

#include "runtime/suspend.h"
#include "server/api/pins.h"

namespace spillway::server {
namespace {

// Wait for the engine's call, which comes on its thread.
struct ListOp {
  Backend& backend;
  const std::string& tenant;
  scheduler::PinList list = {};

  void start(Resumer resumer) {
    auto shared = std::make_shared<Resumer>(std::move(resumer));
    backend.pins(tenant, [this, shared](scheduler::PinList answer) {
      list = std::move(answer);
      shared->resume();
    });
  }
};

struct UnpinOp {
  Backend& backend;
  const std::string& tenant;
  const std::string& id;
  bool found = false;

  void start(Resumer resumer) {
    auto shared = std::make_shared<Resumer>(std::move(resumer));
    backend.unpin(tenant, id, [this, shared](bool answer) {
      found = answer;
      shared->resume();
    });
  }
};

}  // namespace

Task<Answer> show_pins(std::shared_ptr<const ServedModel> model, std::string tenant,
                       std::string id) {
  ListOp op{*model->backend, tenant};
  co_await suspend(op);
  auto body = pins_body(*model, op.list, id);
  if (!body) co_return error_response(body.error());
  co_return Response{.body = std::move(*body)};
}

Task<Answer> delete_pin(std::shared_ptr<const ServedModel> model, std::string tenant,
                        std::string id) {
  UnpinOp op{*model->backend, tenant, id};
  co_await suspend(op);
  if (!op.found) co_return error_response(no_such_pin(id));
  co_return Response{.body = pin_deleted_body(id)};
}

}  // namespace spillway::server
