#include "tests/emulator/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "runtime/check.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SPILLWAY_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define SPILLWAY_ASAN 1
#endif

#ifdef SPILLWAY_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace spillway::emulator {
namespace {

size_t guard_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

// Hands the slab's memory to Boost, which would allocate a stack per fiber.
struct StackOfSlab {
  std::byte* bottom;

  boost::context::stack_context allocate() const {
    boost::context::stack_context context;
    context.size = StackSlab::kStackBytes;
    context.sp = bottom + StackSlab::kStackBytes;
    return context;
  }
  void deallocate(boost::context::stack_context&) const {}
};

// Said before leaving a stack for another; where the one left is not to be entered again its fake
// stack is kept too, for frames of it are still to return.
void leave_stack([[maybe_unused]] void** fake_stack, [[maybe_unused]] const void* to,
                 [[maybe_unused]] size_t to_bytes) {
#ifdef SPILLWAY_ASAN
  __sanitizer_start_switch_fiber(fake_stack, to, to_bytes);
#endif
}

// Said first after arriving on a stack.
void enter_stack([[maybe_unused]] void* fake_stack, [[maybe_unused]] const void** from,
                 [[maybe_unused]] size_t* from_bytes) {
#ifdef SPILLWAY_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, from, from_bytes);
#endif
}

}  // namespace

StackSlab::StackSlab(uint32_t count) : bytes_(count * (kStackBytes + guard_bytes())) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(memory != MAP_FAILED);
  memory_ = static_cast<std::byte*>(memory);
  for (uint32_t i = 0; i < count; ++i) {
    CHECK(mprotect(bottom(i) - guard_bytes(), guard_bytes(), PROT_NONE) == 0);
  }
}

StackSlab::~StackSlab() { munmap(memory_, bytes_); }

std::byte* StackSlab::bottom(uint32_t index) const {
  return memory_ + index * (kStackBytes + guard_bytes()) + guard_bytes();
}

Fiber::Fiber(std::byte* stack_bottom)
    : stack_bottom_(stack_bottom),
      inside_(std::allocator_arg, StackOfSlab{stack_bottom}, [this](boost::context::fiber&& from) {
        enter_stack(nullptr, &back_bottom_, &back_bytes_);
        way_back_ = std::move(from);
        run();
        leave_stack(&fake_stack_, back_bottom_, back_bytes_);
        return std::move(way_back_);
      }) {}

Fiber::~Fiber() {
  CHECK(done_);
  ending_ = true;
  switch_in();
}

void Fiber::start(std::function<void()> body) {
  CHECK(done_);
  body_ = std::move(body);
  done_ = false;
}

void Fiber::resume() {
  CHECK(!done_);
  switch_in();
}

void Fiber::yield() { switch_out(); }

void Fiber::run() {
  while (!ending_) {
    body_();
    done_ = true;
    switch_out();
  }
}

void Fiber::switch_in() {
  void* fake_stack = nullptr;
  leave_stack(&fake_stack, stack_bottom_, StackSlab::kStackBytes);
  inside_ = std::move(inside_).resume();
  enter_stack(fake_stack, nullptr, nullptr);
}

void Fiber::switch_out() {
  leave_stack(&fake_stack_, back_bottom_, back_bytes_);
  way_back_ = std::move(way_back_).resume();
  enter_stack(fake_stack_, &back_bottom_, &back_bytes_);
}

}  // namespace spillway::emulator
