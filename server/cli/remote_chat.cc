// A chat with a running server: OpenAI's chat completions, streamed.

#include <boost/json.hpp>
#include <string_view>

#include "server/api/json_reader.h"
#include "server/cli/chat_source.h"
#include "server/cli/http_exchange.h"
#include "server/version.h"

namespace spillway::server {
namespace {

namespace json = boost::json;

constexpr size_t kBodyMax = 16 << 20;  // of an error, or of one event

uint32_t count_of(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_int64() ? static_cast<uint32_t>(value->get_int64()) : 0;
}

void take_usage(const json::object& usage, ChatAnswer& answer) {
  answer.prompt_tokens = count_of(usage, "prompt_tokens");
  answer.completion_tokens = count_of(usage, "completion_tokens");
  const json::value* details = usage.if_contains("prompt_tokens_details");
  if (details != nullptr && details->is_object()) {
    answer.cached_tokens = count_of(details->get_object(), "cached_tokens");
  }
}

// What {"error": {"message": ...}} says, else `otherwise`.
std::string error_text(const json::object& body, std::string otherwise) {
  const json::value* error = body.if_contains("error");
  if (error == nullptr || !error->is_object()) return otherwise;
  const json::value* message = error->get_object().if_contains("message");
  if (message == nullptr || !message->is_string()) return otherwise;
  return std::string(message->get_string().c_str());
}

void take_chunk(const json::object& chunk, ChatAnswer& answer, const ChatSource::OnText& on_text) {
  if (chunk.contains("error")) answer.error = error_text(chunk, "the server reported an error");
  if (const json::value* usage = chunk.if_contains("usage"); usage && usage->is_object()) {
    take_usage(usage->get_object(), answer);
  }
  const json::value* choices = chunk.if_contains("choices");
  if (choices == nullptr || !choices->is_array()) return;
  for (const json::value& choice : choices->get_array()) {
    const json::object* fields = choice.if_object();
    if (fields == nullptr) continue;
    if (const json::value* why = fields->if_contains("finish_reason")) {
      answer.length_reached = answer.length_reached || *why == "length";
    }
    const json::value* delta = fields->if_contains("delta");
    if (delta == nullptr || !delta->is_object()) continue;
    const json::value* content = delta->get_object().if_contains("content");
    if (content == nullptr || !content->is_string()) continue;
    const json::string& text = content->get_string();
    if (!text.empty()) on_text(std::string(text.data(), text.size()));
  }
}

class RemoteChat final : public ChatSource {
 public:
  RemoteChat(const ChatOptions& options, Url url) : options_(options), url_(std::move(url)) {}

  std::string banner() const override {
    return "Spillway " + std::string(version()) + "\n  server   http://" + url_.host + ":" +
           url_.port + url_.path + "\n";
  }

  Result<ChatAnswer> answer(const json::array& messages, const OnText& on_text,
                            const std::function<bool()>& interrupted) override {
    HttpExchange http(interrupted);
    if (auto done = http.connect(url_); !done) return done.error();
    if (auto done = http.send(request(messages)); !done) return done.error();
    const auto status = http.read_head();
    if (!status) return status.error();
    ChatAnswer answer;
    if (*status != 200 && *status != 0) return refused(http, *status);
    bool whole = false;
    while (!whole) {
      const auto more = http.read_more();
      if (!more) return more.error();
      whole = take_events(http.received(), answer, on_text);
      if (!*more) break;
    }
    answer.stopped = interrupted();
    if (!whole && !answer.stopped && answer.error.empty()) {
      answer.error = "the server ended the answer early";
    }
    return answer;
  }

 private:
  std::string request(const json::array& messages) const {
    json::object body{{"messages", messages},
                      {"stream", true},
                      {"stream_options", {{"include_usage", true}}},
                      {"temperature", options_.temperature},
                      {"top_p", options_.top_p}};
    if (options_.max_tokens > 0) body["max_tokens"] = options_.max_tokens;
    if (!options_.model.served_names.empty()) body["model"] = options_.model.served_names.front();
    if (options_.model.seed) body["seed"] = static_cast<int64_t>(*options_.model.seed);
    const std::string text = json::serialize(body);
    std::string head = "POST " + url_.path + "/chat/completions HTTP/1.0\r\nHost: " + url_.host +
                       ":" + url_.port + "\r\nContent-Type: application/json\r\n" +
                       "Content-Length: " + std::to_string(text.size()) + "\r\n";
    if (!options_.api_key.empty()) head += "Authorization: Bearer " + options_.api_key + "\r\n";
    return head + "\r\n" + text;
  }

  static Error refused(HttpExchange& http, int status) {
    while (http.received().size() < kBodyMax) {
      const auto more = http.read_more();
      if (!more || !*more) break;
    }
    const std::string plain = "the server answered " + std::to_string(status);
    const auto body = read_json_object(http.received());
    return Error{ErrorCode::kIo, body ? error_text(*body, plain) : plain};
  }

  // Takes the whole events in `bytes`; true after the last one of the answer.
  static bool take_events(std::string& bytes, ChatAnswer& answer, const OnText& on_text) {
    size_t at = 0;
    bool whole = false;
    for (size_t end = 0; !whole && (end = bytes.find('\n', at)) != bytes.npos; at = end + 1) {
      std::string_view line = std::string_view(bytes).substr(at, end - at);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (!line.starts_with("data:")) continue;
      line.remove_prefix(line.starts_with("data: ") ? 6 : 5);
      whole = line == "[DONE]";
      if (whole) break;
      if (const auto chunk = read_json_object(line)) take_chunk(*chunk, answer, on_text);
    }
    bytes.erase(0, at);
    if (bytes.size() > kBodyMax) bytes.clear();
    return whole;
  }

  const ChatOptions options_;
  const Url url_;
};

}  // namespace

Result<std::unique_ptr<ChatSource>> make_remote_chat(const ChatOptions& options) {
  auto url = parse_url(options.url);
  if (!url) return url.error();
  return std::unique_ptr<ChatSource>(std::make_unique<RemoteChat>(options, std::move(*url)));
}

}  // namespace spillway::server
