#include "cache/copies_up.h"

#include <utility>

#include "runtime/suspend.h"

namespace spillway::cache {
namespace {

// To the end of the loop's queue: whoever is ready now has his turn before.
struct LetOthersGo {
  void start(Resumer resumer) { resumer.resume(); }
};

}  // namespace

Task<> CopiesUp::copy(std::byte* to, std::span<const std::byte> from) {
  kernels::Stream& stream = device_.copy_in();
  stream.copy(to, from.data(), from.size());
  if (gathering_ == nullptr) gathering_ = device_.make_event();
  const std::shared_ptr<kernels::Event> done = gathering_;
  LetOthersGo others;
  co_await suspend(others);
  if (gathering_ == done) {
    gathering_.reset();
    stream.record(*done);
  }
  co_await done->wait();
}

}  // namespace spillway::cache
