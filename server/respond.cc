#include "server/respond.h"

namespace spillway::server {

Task<bool> Responder::send(Response response) {
  started_ = true;
  status_ = response.status;
  HeaderFields fields = fields_;
  for (auto& field : response.fields) fields.push_back(std::move(field));
  const HeadOptions options{
      .http10 = http10_, .keep_alive = keep_alive_, .content_length = response.body.size()};
  std::string bytes = response_head(response.status, response.content_type, fields, options);
  if (!head_only_) bytes += response.body;
  co_return co_await connection_.write(bytes, write_limit_);
}

Task<bool> Responder::send_events(std::string bytes, bool last) {
  std::string out;
  if (!started_) {
    started_ = true;
    status_ = 200;
    if (http10_) keep_alive_ = false;  // the end of the connection ends the stream
    HeaderFields fields = fields_;
    fields.emplace_back("cache-control", "no-cache");
    fields.emplace_back("x-accel-buffering", "no");
    out = response_head(200, "text/event-stream; charset=utf-8", fields,
                        {.http10 = http10_, .keep_alive = keep_alive_});
  }
  out += frame_chunk(bytes, http10_, last);
  if (out.empty()) co_return true;
  co_return co_await connection_.write(out, write_limit_);
}

}  // namespace spillway::server
