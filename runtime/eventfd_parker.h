// A Parker that blocks in ppoll on an eventfd: works everywhere, watches nothing else.
#pragma once

#include "runtime/parker.h"

namespace spillway {

class EventfdParker final : public Parker {
 public:
  EventfdParker();  // ends the process where the system has no eventfd left
  ~EventfdParker() override;
  EventfdParker(const EventfdParker&) = delete;
  EventfdParker& operator=(const EventfdParker&) = delete;

  void park(std::optional<std::chrono::nanoseconds> timeout) override;
  void wake() override;
  std::string description() const override { return "ppoll"; }

 private:
  int fd_;
};

}  // namespace spillway
