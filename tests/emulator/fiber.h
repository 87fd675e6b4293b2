// One CUDA thread's stack and flow of control, switched to and from by the emulator's scheduler.
//
// A fiber runs many bodies, one after another, so that blocks reuse stacks. Each keeps its own way
// back to whoever resumed it. AddressSanitizer is told of every switch.
// All of it in one OS thread at a time.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace spillway::emulator {

// Memory for `count` stacks, each with an inaccessible page below it.
class StackSlab {
 public:
  static constexpr size_t kStackBytes = 128 * 1024;

  explicit StackSlab(uint32_t count);
  ~StackSlab();
  StackSlab(const StackSlab&) = delete;
  StackSlab& operator=(const StackSlab&) = delete;

  std::byte* bottom(uint32_t index) const;  // of kStackBytes

 private:
  size_t bytes_;
  std::byte* memory_;
};

class Fiber {
 public:
  explicit Fiber(std::byte* stack_bottom);
  ~Fiber();  // REQUIRES: done()
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The body for the next resume() to begin with. It must end by returning. REQUIRES: done().
  void start(std::function<void()> body);
  void resume();  // runs until the body yields or ends. REQUIRES: !done()
  void yield();   // from within the body: back to whoever called resume()
  bool done() const { return done_; }

 private:
  void run();
  void switch_in();
  void switch_out();

  std::byte* stack_bottom_;
  std::function<void()> body_;
  boost::context::fiber inside_;       // where the fiber stands, while it does not run
  boost::context::fiber way_back_;     // while it runs
  const void* back_bottom_ = nullptr;  // the stack of the way back
  size_t back_bytes_ = 0;
  void* fake_stack_ = nullptr;
  bool done_ = true;
  bool ending_ = false;
};

}  // namespace spillway::emulator
