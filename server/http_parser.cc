#include "server/http_parser.h"

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "runtime/check.h"

namespace spillway::server {
namespace {

namespace http = boost::beast::http;

constexpr size_t kFieldsMax = 128;
// Chunk headers and trailers: one-byte chunks cost 6 bytes each (case H1).
constexpr uint64_t kChunkOverheadMax = 64 << 10;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 'a' - 'A');
  }
  return out;
}

// A line feed without its carriage return: Beast waits for ever for the real line end.
bool has_bare_line_feed(std::string_view bytes) {
  for (size_t at = bytes.find('\n'); at != bytes.npos; at = bytes.find('\n', at + 1)) {
    if (at == 0 || bytes[at - 1] != '\r') return true;
  }
  return false;
}

// What belongs to the head, where lines of it may have been taken before: an empty line ends it.
std::string_view rest_of_head(std::string_view bytes) {
  if (bytes.starts_with("\r\n")) return bytes.substr(0, 2);
  return bytes.substr(0, bytes.find("\r\n\r\n"));
}

bool is_host(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("-._~:[]%!$&'()*+,;=").find(c) != std::string_view::npos;
  });
}

bool is_digits(std::string_view text) {
  return !text.empty() && text.size() < 20 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

struct HttpParser::Impl {
  http::request_parser<http::string_body> parser;
};

std::string_view RequestHead::field(std::string_view name) const {
  for (const auto& [key, value] : fields) {
    if (key == name) return value;
  }
  return {};
}

size_t RequestHead::count(std::string_view name) const {
  return static_cast<size_t>(std::count_if(fields.begin(), fields.end(),
                                           [&](const auto& field) { return field.first == name; }));
}

std::string_view RequestHead::path() const {
  return std::string_view(target).substr(0, target.find('?'));
}

HttpParser::HttpParser(const HttpLimits& limits)
    : limits_(limits), impl_(std::make_unique<Impl>()) {
  impl_->parser.header_limit(limits.head_bytes);
  impl_->parser.body_limit(limits.body_bytes);
}

HttpParser::~HttpParser() = default;

void HttpParser::fail(int status, std::string message, std::string code) {
  state_ = State::kFailed;
  error_ = ApiError{.status = status, .message = std::move(message), .code = std::move(code)};
}

size_t HttpParser::put(std::string_view bytes) {
  CHECK(state_ == State::kHead || state_ == State::kBody);
  return state_ == State::kHead ? put_head(bytes) : put_body(bytes);
}

size_t HttpParser::put_head(std::string_view bytes) {
  boost::system::error_code ec;
  size_t skipped = 0;
  if (!impl_->parser.got_some()) {
    // Clients may end the last request with an empty line (RFC 9112, 2.2).
    while (bytes.substr(skipped).starts_with("\r\n")) skipped += 2;
    bytes.remove_prefix(skipped);
    if (bytes.empty() || bytes == "\r") return skipped;
  }
  if (has_bare_line_feed(rest_of_head(bytes))) {
    fail(400, "the request's header has a line feed without a carriage return", "bad_request");
    return skipped;
  }
  const size_t used = impl_->parser.put(boost::asio::buffer(bytes.data(), bytes.size()), ec);
  // Beast takes whole lines as they come, and its own limit knows only those of one call.
  head_wire_bytes_ += used;
  const size_t rest = ec == http::error::need_more ? bytes.size() - used : 0;
  if (head_wire_bytes_ + rest > limits_.head_bytes && (!ec || ec == http::error::need_more)) {
    fail_from(static_cast<int>(http::error::header_limit));
    return skipped + used;
  }
  if (ec == http::error::need_more) return skipped + used;
  if (ec) {
    fail_from(ec.category() == http::make_error_code(http::error::bad_method).category()
                  ? ec.value()
                  : 0);
    return skipped + used;
  }
  if (!impl_->parser.is_header_done()) return skipped + used;
  read_fields();
  check_head();
  if (state_ == State::kFailed) return skipped + used;
  state_ = State::kBody;
  head_.has_body = !impl_->parser.is_done();
  impl_->parser.eager(true);
  if (!head_.has_body) state_ = State::kDone;
  return skipped + used;
}

size_t HttpParser::put_body(std::string_view bytes) {
  boost::system::error_code ec;
  size_t used = 0;
  while (!ec && !impl_->parser.is_done() && used < bytes.size()) {
    const size_t step =
        impl_->parser.put(boost::asio::buffer(bytes.data() + used, bytes.size() - used), ec);
    used += step;
    if (step == 0 && !ec) break;
  }
  body_wire_bytes_ += used;
  if (ec && ec != http::error::need_more) {
    fail_from(ec.category() == http::make_error_code(http::error::bad_method).category()
                  ? ec.value()
                  : 0);
  } else if (impl_->parser.is_done()) {
    state_ = State::kDone;
  } else if (impl_->parser.chunked()) {
    const uint64_t body = impl_->parser.get().body().size();
    if (has_bare_line_feed(bytes.substr(used))) {
      fail(400, "a chunk's size line ends without a carriage return", "bad_request");
    } else if (body_wire_bytes_ + (bytes.size() - used) > 7 * body + kChunkOverheadMax) {
      fail(400, "the chunked body has too much beside its data (extensions or trailers)",
           "bad_request");
    }
  }
  return used;
}

void HttpParser::fail_from(int beast_error) {
  switch (static_cast<http::error>(beast_error)) {
    case http::error::header_limit:
      return fail(
          431,
          "the request's header is larger than " + std::to_string(limits_.head_bytes) + " bytes",
          "header_too_large");
    case http::error::body_limit:
      return fail(
          413, "the request's body is larger than " + std::to_string(limits_.body_bytes) + " bytes",
          "body_too_large");
    case http::error::bad_version:
      return fail(505, "only HTTP/1.0 and HTTP/1.1 are spoken here", "bad_version");
    default:
      return fail(400, "the request is not well-formed HTTP/1.1", "bad_request");
  }
}

void HttpParser::read_fields() {
  const auto& message = impl_->parser.get();
  head_.method = std::string(message.method_string());
  head_.target = std::string(message.target());
  head_.http10 = message.version() < 11;
  head_.keep_alive = message.keep_alive();
  for (const auto& field : message) {
    head_.fields.emplace_back(lower(field.name_string()), std::string(field.value()));
  }
  head_.expects_continue = lower(head_.field("expect")) == "100-continue";
}

void HttpParser::check_head() {
  const unsigned version = impl_->parser.get().version();
  if (version != 10 && version != 11) {
    return fail(505, "only HTTP/1.0 and HTTP/1.1 are spoken here", "bad_version");
  }
  if (head_.fields.size() > kFieldsMax) {
    return fail(431, "the request has more than " + std::to_string(kFieldsMax) + " header fields",
                "header_too_large");
  }
  const size_t hosts = head_.count("host");
  if (hosts > 1 || (hosts == 0 && !head_.http10) || !is_host(head_.field("host"))) {
    return fail(400, "the request needs exactly one valid Host header field", "bad_host");
  }
  if (head_.target.empty() || (head_.target[0] != '/' && head_.target != "*")) {
    return fail(400, "the request's target must be a path", "bad_target");
  }
  check_framing();
}

void HttpParser::check_framing() {
  const size_t lengths = head_.count("content-length");
  const size_t codings = head_.count("transfer-encoding");
  if (lengths > 1 || (lengths == 1 && !is_digits(head_.field("content-length")))) {
    return fail(400, "Content-Length must be given once, as one number", "bad_framing");
  }
  if (codings == 0) return;
  if (head_.http10) {
    return fail(400, "HTTP/1.0 has no Transfer-Encoding", "bad_framing");
  }
  if (lengths > 0) {
    return fail(400, "Content-Length and Transfer-Encoding exclude each other", "bad_framing");
  }
  if (codings > 1 || lower(head_.field("transfer-encoding")) != "chunked") {
    return fail(400, "the only Transfer-Encoding spoken here is 'chunked'", "bad_framing");
  }
}

std::string HttpParser::take_body() {
  CHECK(state_ == State::kDone);
  return std::move(impl_->parser.get().body());
}

}  // namespace spillway::server
