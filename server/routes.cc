#include "server/routes.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "runtime/check.h"
#include "server/api/chat.h"
#include "server/api/completion.h"
#include "server/api/json_text.h"
#include "server/api/model_list.h"
#include "server/api/pins.h"
#include "server/api/responses.h"
#include "server/api/tokenize.h"
#include "server/debug_cache.h"
#include "server/debug_trace.h"
#include "server/page.h"
#include "server/pins.h"
#include "server/reset_cache.h"
#include "server/version.h"
#include "server/websocket.h"

namespace spillway::server {
namespace {

enum class Method : uint8_t { kGet, kPost, kGetPost, kGetDelete };
enum class Route : uint8_t {
  kHealth,
  kVersion,
  kMetrics,
  kModels,
  kModel,
  kChat,
  kCompletions,
  kResponses,
  kTokenize,
  kDetokenize,
  kDebugCache,
  kDebugTrace,
  kResetCache,
  kPins,
  kPin,
  kPage,
};

struct Entry {
  std::string_view path;
  Method method;
  Route route;
};

constexpr std::array<Entry, 17> kRoutes = {{
    {"/health", Method::kGet, Route::kHealth},
    {"/version", Method::kGet, Route::kVersion},
    {"/metrics", Method::kGet, Route::kMetrics},
    {"/v1/models", Method::kGet, Route::kModels},
    {"/v1/models/", Method::kGet, Route::kModel},  // and what follows
    {"/v1/chat/completions", Method::kPost, Route::kChat},
    {"/v1/completions", Method::kPost, Route::kCompletions},
    {"/v1/responses", Method::kPost, Route::kResponses},
    {"/tokenize", Method::kPost, Route::kTokenize},
    {"/detokenize", Method::kPost, Route::kDetokenize},
    {"/debug/cache", Method::kGet, Route::kDebugCache},
    {"/debug/trace", Method::kGet, Route::kDebugTrace},
    {"/reset_prefix_cache", Method::kPost, Route::kResetCache},
    {"/flush_cache", Method::kPost, Route::kResetCache},
    {"/v1/cache/pins", Method::kGetPost, Route::kPins},
    {"/v1/cache/pins/", Method::kGetDelete, Route::kPin},  // and what follows
    {"/ping", Method::kGet, Route::kHealth},
}};

constexpr Entry kPageRoute = {"/", Method::kGet, Route::kPage};

const Entry* find_route(std::string_view path) {
  for (const Entry& entry : kRoutes) {
    const bool prefix = entry.path.ends_with('/') && path.size() > entry.path.size();
    if (prefix ? path.starts_with(entry.path) : path == entry.path) return &entry;
  }
  if (is_page(path)) return &kPageRoute;
  return nullptr;
}

std::string_view methods_of(Method method) {
  switch (method) {
    case Method::kGet:
      return "GET, HEAD";
    case Method::kPost:
      return "POST";
    case Method::kGetPost:
      return "GET, HEAD, POST";
    case Method::kGetDelete:
      return "GET, HEAD, DELETE";
  }
  CHECK(false);
}

bool method_fits(Method method, std::string_view name) {
  if (name == "GET" || name == "HEAD") return method != Method::kPost;
  if (name == "POST") return method == Method::kPost || method == Method::kGetPost;
  return name == "DELETE" && method == Method::kGetDelete;
}

std::string percent_decode(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '%' && at + 2 < text.size() && digit(text[at + 1]) >= 0 &&
        digit(text[at + 2]) >= 0) {
      out += static_cast<char>(digit(text[at + 1]) * 16 + digit(text[at + 2]));
      at += 2;
    } else {
      out += text[at];
    }
  }
  return out;
}

ApiError not_ready(const Service& service) {
  const bool failed = !service.load_error.empty();
  return {.status = 503,
          .type = "service_unavailable_error",
          .message = failed ? "the model could not be loaded: " + service.load_error
                            : "the model is still loading: try again in a moment",
          .code = "model_not_ready"};
}

Response to_response(ApiResult<std::string> result) {
  if (!result) return error_response(result.error());
  return {.body = std::move(*result)};
}

Response health(const Service& service) {
  if (service.drain.stopped()) {
    return {.status = 503, .body = "{\"status\":\"draining\"}"};
  }
  if (service.model == nullptr) {
    return {.status = 503,
            .body = service.load_error.empty() ? "{\"status\":\"loading model\"}"
                                               : "{\"status\":\"failed\"}"};
  }
  return {.body = "{\"status\":\"ok\"}"};
}

Response metrics(Service& service) {
  Response response{.content_type = "text/plain; version=0.0.4; charset=utf-8"};
  if (service.model == nullptr) {
    response.body = service.metrics.text(nullptr, "", 0);
  } else {
    const auto stats = service.model->backend->stats();
    response.body =
        service.metrics.text(&stats, service.model->names.front(), service.model->page_tokens);
  }
  return response;
}

using Prepare = ApiResult<Job> (*)(std::shared_ptr<const ServedModel>, std::string_view,
                                   const std::string&);
using Compute = ApiResult<std::string> (*)(const ServedModel&, std::string_view);

Task<Answer> prepare_on_pool(Service& service, Prepare prepare, Request request) {
  auto work = [prepare, model = service.model, request = std::move(request)] {
    return std::make_unique<ApiResult<Job>>(prepare(model, request.body, request.tenant));
  };
  auto job = co_await service.pool.run(std::move(work));
  if (!job) co_return error_response(from_error(job.error()));
  ApiResult<Job>& prepared = **job;
  if (!prepared) co_return error_response(prepared.error());
  co_return std::move(*prepared);
}

Task<Answer> prepare_response_on_pool(Service& service, Request request) {
  auto work = [model = service.model, shared = service.responses, request = std::move(request)] {
    const ResponseContext context{.tenant = request.tenant, .session = {}, .shared = shared};
    return std::make_unique<ApiResult<Job>>(prepare_response_job(model, request.body, context));
  };
  auto job = co_await service.pool.run(std::move(work));
  if (!job) co_return error_response(from_error(job.error()));
  ApiResult<Job>& prepared = **job;
  if (!prepared) co_return error_response(prepared.error());
  co_return std::move(*prepared);
}

Task<Answer> compute_on_pool(Service& service, Compute compute, std::string body) {
  auto work = [compute, model = service.model, body = std::move(body)] {
    return std::make_unique<ApiResult<std::string>>(compute(*model, body));
  };
  auto text = co_await service.pool.run(std::move(work));
  if (!text) co_return error_response(from_error(text.error()));
  co_return to_response(std::move(**text));
}

}  // namespace

std::string_view route_name(std::string_view path) {
  const Entry* entry = find_route(path);
  return entry == nullptr ? "other" : entry->path;
}

std::string_view allowed_methods(std::string_view path) {
  const Entry* entry = find_route(path);
  return entry == nullptr ? std::string_view() : methods_of(entry->method);
}

ApiResult<std::string> admit(const Service& service, const RequestHead& head) {
  if (!service.access.origin_ok(head)) {
    return ApiError{.status = 403,
                    .type = "permission_error",
                    .message =
                        "requests from this web page are not allowed: start the server "
                        "with --allowed-origins to allow its origin",
                    .code = "origin_not_allowed"};
  }
  const Entry* entry = find_route(head.path());
  std::string tenant;
  if (entry == nullptr || entry->route != Route::kHealth) {
    auto known = service.access.tenant_of(head);
    if (!known) {
      return ApiError{.status = 401,
                      .message = "a valid API key is needed: send 'Authorization: Bearer KEY'",
                      .code = "invalid_api_key"};
    }
    tenant = std::move(*known);
  }
  if (entry == nullptr) {
    return ApiError{.status = 404,
                    .type = "not_found_error",
                    .message = "there is nothing at this path",
                    .code = "not_found"};
  }
  const bool socket = entry->route == Route::kResponses && WebSocket::is_upgrade(head);
  if (!socket && !method_fits(entry->method, head.method)) {
    return ApiError{.status = 405,
                    .message = "this path takes only " + std::string(methods_of(entry->method)),
                    .code = "method_not_allowed"};
  }
  return tenant;
}

Task<Answer> answer(Service& service, Connection& connection, Request request) {
  const Route route = find_route(request.head.path())->route;
  if (route == Route::kHealth) co_return health(service);
  if (route == Route::kVersion) co_return Response{.body = version_body(service.options.network)};
  if (route == Route::kMetrics) co_return metrics(service);
  if (route == Route::kPage) co_return page_response(request.head.path());
  if (service.model == nullptr) co_return error_response(not_ready(service));
  const ServedModel& model = *service.model;
  switch (route) {
    case Route::kModels:
      co_return Response{.body = model_list(model)};
    case Route::kModel:
      co_return to_response(
          model_card(model, percent_decode(request.head.path().substr(sizeof "/v1/models"))));
    case Route::kChat:
      co_return co_await prepare_on_pool(service, prepare_chat, std::move(request));
    case Route::kCompletions:
      co_return co_await prepare_on_pool(service, prepare_completion, std::move(request));
    case Route::kResponses:
      co_return co_await prepare_response_on_pool(service, std::move(request));
    case Route::kTokenize:
      co_return co_await compute_on_pool(service, tokenize, std::move(request.body));
    case Route::kDetokenize:
      co_return co_await compute_on_pool(service, detokenize, std::move(request.body));
    case Route::kDebugCache:
      co_return Response{.body = debug_cache_body(model)};
    case Route::kDebugTrace:
      co_return co_await debug_trace(service, connection, std::move(request));
    case Route::kResetCache:
      co_return co_await reset_cache(service.model->backend);
    case Route::kPins:
      if (request.head.method == "POST") {
        co_return co_await prepare_on_pool(service, prepare_pin, std::move(request));
      }
      co_return co_await show_pins(service.model, std::move(request.tenant), std::string());
    case Route::kPin: {
      std::string id = percent_decode(request.head.path().substr(sizeof "/v1/cache/pins"));
      if (request.head.method == "DELETE") {
        co_return co_await delete_pin(service.model, std::move(request.tenant), std::move(id));
      }
      co_return co_await show_pins(service.model, std::move(request.tenant), std::move(id));
    }
    case Route::kHealth:
    case Route::kVersion:
    case Route::kMetrics:
    case Route::kPage:
      break;
  }
  CHECK(false);
}

}  // namespace spillway::server
