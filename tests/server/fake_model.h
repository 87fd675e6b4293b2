// A model for server tests: a tokenizer of bytes plus three control tokens, a ChatML template in
// plain code, and a backend on its own thread that answers every prompt with "a b c d ...", one
// byte a token, as fast or slow as the test says.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/api/served_model.h"

namespace spillway::server {

class FakeTokenizer final : public model::Tokenizer {
 public:
  static constexpr model::TokenId kBos = 256, kStart = 257, kEnd = 258;

  std::vector<model::TokenId> encode(std::string_view text,
                                     model::EncodeOptions options) const override;
  std::string_view piece(model::TokenId token, bool show_control) const override;
  std::string decode(const std::vector<model::TokenId>& tokens, bool show_control) const override;
  uint32_t vocabulary() const override { return 259; }
  model::TokenId bos() const override { return kBos; }
  model::TokenId eos() const override { return kEnd; }
  bool adds_bos() const override { return true; }
  bool ends_generation(model::TokenId token) const override { return token == kEnd; }
  const std::vector<model::TokenId>& end_tokens() const override { return ends_; }
  bool is_control(model::TokenId token) const override { return token >= 256; }

 private:
  std::vector<model::TokenId> ends_{kEnd};
};

class FakeBackend final : public Backend {
 public:
  FakeBackend();
  ~FakeBackend() override;

  Result<scheduler::RequestId> submit(scheduler::Request request,
                                      std::shared_ptr<scheduler::OutputSink> sink) override;
  void cancel(scheduler::RequestId request) override;
  void end_session(const std::string&) override {}
  void prefetch(const std::string& session) override;
  std::vector<std::string> prefetched() const;  // sessions, as they were asked for
  void pins(const std::string& tenant, std::function<void(scheduler::PinList)> then) override;
  void unpin(const std::string& tenant, const std::string& id,
             std::function<void(bool found)> then) override;
  void reset_prefix_cache(std::function<void(uint64_t)> then) override;
  void start_trace() override { ++traces_begun; }
  // One step and one read, half of it before `begin`.
  void take_trace(Clock::TimePoint begin, std::optional<std::string> tenant,
                  std::function<void(TraceSnapshot)> then) override;
  std::vector<std::optional<std::string>> trace_tenants() const;  // of those that were taken
  scheduler::EngineStats stats() const override;

  // Milliseconds before the first token, and between tokens.
  std::atomic<int> first_ms{0}, token_ms{0};
  std::atomic<int> fail_after_tokens{-1};  // then the request ends with kError
  std::atomic<int> running{0}, cancelled{0}, refused{0};
  std::atomic<int> traces_begun{0}, traces_taken{0};
  std::atomic<bool> full{false};   // refuse with kResourceExhausted
  std::atomic<int> reports{0};     // how often a request that wants it is told how it goes
  std::atomic<int> pin_result{0};  // scheduler::PinResult
  std::vector<scheduler::Request> seen() const;  // all that were submitted

 private:
  struct Live {
    scheduler::Request request;
    std::shared_ptr<scheduler::OutputSink> sink;
    std::chrono::steady_clock::time_point next;
    uint32_t produced = 0;
    bool cancelled = false;
  };
  void run();
  // One token of every choice; true when the request has ended.
  bool step(scheduler::RequestId id, Live& live);
  void end(scheduler::RequestId id, Live& live, scheduler::FinishReason reason);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<scheduler::RequestId, Live> live_;
  std::vector<scheduler::Request> seen_;
  std::deque<std::function<void(uint64_t)>> resets_;
  std::deque<std::function<void()>> takes_;
  std::vector<std::optional<std::string>> trace_tenants_;
  std::vector<std::string> prefetched_;
  std::map<std::pair<std::string, std::string>, uint32_t> pins_;  // tenant and id: tokens
  uint64_t next_id_ = 1;
  bool ending_ = false;
  std::thread thread_;
};

// Named "fake" and "fake-alias"; context of 4096 tokens.
std::shared_ptr<ServedModel> make_fake_model(std::shared_ptr<FakeBackend> backend);

}  // namespace spillway::server
