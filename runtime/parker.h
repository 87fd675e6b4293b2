// Where an EngineLoop blocks: the one place in which the engine's thread waits for the outside.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace spillway {

class Parker {
 public:
  virtual ~Parker() = default;
  // Blocks until wake() was called since the last park() or poll() returned, something else that
  // this parker watches has happened, or `timeout` is over; may return early. Loop's thread.
  virtual void park(std::optional<std::chrono::nanoseconds> timeout) = 0;
  // Delivers what happened outside without blocking; called once per turn of a busy loop; an idle
  // one parks. Loop's thread.
  virtual void poll() {}
  // Ends the park() that runs, or the next one. Any thread.
  virtual void wake() = 0;
  virtual std::string description() const = 0;  // "io_uring", "ppoll"
};

}  // namespace spillway
