#include "server/connection.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"

namespace spillway::server {
namespace {

constexpr size_t kReadBytes = 4 << 10;  // of an idle connection; grows with what arrives
constexpr size_t kReadBytesMax = 32 << 10;
constexpr std::chrono::milliseconds kLinger{2000};
constexpr size_t kLingerBytes = 64 << 20;  // a refused body may be on its way

}  // namespace

Connection::Connection(std::unique_ptr<Stream> stream)
    : stream_(std::move(stream)), timer_(stream_->get_executor()) {}

Connection::~Connection() {
  CHECK(!read_pending_);
  CHECK(!write_pending_);
  CHECK(timers_pending_ == 0);
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  stream_->close();
}

void Connection::interrupt() {
  interrupted_ = true;
  wake_.notify();
}

void Connection::wake_idle() {
  idle_woken_ = true;
  wake_.notify();
}

void Connection::set_deadline(std::chrono::steady_clock::time_point deadline) {
  timed_out_ = false;
  deadline_ = deadline;
  if (timers_pending_ == 0 || deadline < timer_.expiry()) start_timer();
}

void Connection::start_timer() {
  timer_.expires_at(*deadline_);
  ++timers_pending_;
  timer_.async_wait([this](error_code) {
    --timers_pending_;
    if (deadline_ && std::chrono::steady_clock::now() >= *deadline_) {
      timed_out_ = true;
    } else if (deadline_ && timers_pending_ == 0) {
      start_timer();
    }
    wake_.notify();
  });
}

void Connection::start_read() {
  if (read_pending_ || read_ended_ || closed_ || inbound_.size() >= kInboundMax) return;
  if (chunk_.empty()) chunk_.resize(kReadBytes);
  read_pending_ = true;
  const size_t room = std::min(chunk_.size(), kInboundMax - inbound_.size());
  stream_->read_some(asio::buffer(chunk_.data(), room), [this](error_code ec, size_t count) {
    read_pending_ = false;
    if (ec) {
      read_ended_ = true;
    } else {
      inbound_.append(chunk_, 0, count);
      if (count == chunk_.size() && count < kReadBytesMax) chunk_.resize(count * 2);
    }
    wake_.notify();
  });
}

Task<Connection::Fill> Connection::fill(std::chrono::steady_clock::time_point deadline) {
  CHECK(inbound_.size() < kInboundMax);
  const size_t before = inbound_.size();
  set_deadline(deadline);
  Fill result = Fill::kEnd;
  for (;;) {
    if (inbound_.size() > before) {
      result = Fill::kBytes;
      break;
    }
    if (peer_gone()) break;
    if (interrupted_ || std::exchange(idle_woken_, false)) {
      result = Fill::kInterrupted;
      break;
    }
    if (timed_out_) {
      result = Fill::kTimeout;
      break;
    }
    start_read();
    co_await wake_.wait();
  }
  clear_deadline();
  co_return result;
}

void Connection::watch() { start_read(); }

Task<bool> Connection::write(std::string_view bytes, Duration limit) {
  while (!bytes.empty() && !closed_ && !write_failed_) {
    set_deadline(std::chrono::steady_clock::now() + limit);
    write_pending_ = true;
    written_ = 0;
    stream_->write_some(asio::buffer(bytes.data(), bytes.size()),
                        [this](error_code ec, size_t count) {
                          write_pending_ = false;
                          written_ = count;
                          if (ec) write_failed_ = true;
                          wake_.notify();
                        });
    bool hurried = false;
    while (write_pending_) {
      if (timed_out_) close();
      if (interrupted_ && !std::exchange(hurried, true)) {
        set_deadline(std::min(*deadline_, std::chrono::steady_clock::now() + kLinger));
      }
      co_await wake_.wait();
    }
    bytes.remove_prefix(written_);
    clear_deadline();
  }
  if (write_failed_) close();
  co_return bytes.empty() && !closed_;
}

Task<bool> Connection::handshake(Duration limit) {
  set_deadline(std::chrono::steady_clock::now() + limit);
  bool done = false;
  bool failed = false;
  write_pending_ = true;
  stream_->handshake([this, &done, &failed](error_code ec) {
    write_pending_ = false;
    done = true;
    failed = static_cast<bool>(ec);
    wake_.notify();
  });
  while (!done) {
    if (timed_out_ || interrupted_) close();
    co_await wake_.wait();
  }
  clear_deadline();
  co_return !failed && !closed_;
}

Task<> Connection::finish(bool politely) {
  if (politely && !closed_ && !write_failed_) {
    set_deadline(std::chrono::steady_clock::now() + kLinger);
    write_pending_ = true;
    stream_->finish_writing([this](error_code) {
      write_pending_ = false;
      wake_.notify();
    });
    size_t discarded = 0;
    while (!timed_out_ && !read_ended_ && discarded < kLingerBytes) {
      discarded += inbound_.size();
      inbound_.clear();
      if (!write_pending_) start_read();
      co_await wake_.wait();
    }
  }
  close();
  clear_deadline();
  timer_.cancel();
  while (read_pending_ || write_pending_ || timers_pending_ > 0) co_await wake_.wait();
}

}  // namespace spillway::server
