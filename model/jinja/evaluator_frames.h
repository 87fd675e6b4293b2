// What the evaluator switches for a while: the function it is in, and where output goes.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "model/jinja/evaluator.h"

namespace spillway::model::jinja {

// A call of a function: its activation is current while this lives. One that something still refers
// to afterwards (a macro defined in it, a loop) is kept by the run.
class Evaluator::Frame {
 public:
  Frame(Evaluator& evaluator, std::shared_ptr<Activation> parent, uint16_t slots)
      : Frame(evaluator, std::make_shared<Activation>()) {
    evaluator.here_->slots.resize(slots);
    evaluator.here_->parent = std::move(parent);
    evaluator.run_.charge(slots * sizeof(Value));
  }
  Frame(Evaluator& evaluator, std::shared_ptr<Activation> activation)
      : evaluator_(evaluator), saved_(std::move(evaluator.here_)) {
    evaluator.here_ = std::move(activation);
  }
  ~Frame() {
    if (evaluator_.here_.use_count() > 1) evaluator_.run_.own(evaluator_.here_);
    evaluator_.here_ = std::move(saved_);
  }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

 private:
  Evaluator& evaluator_;
  std::shared_ptr<Activation> saved_;
};

// Output goes to `text` while this lives.
class Evaluator::Capture {
 public:
  Capture(Evaluator& evaluator, std::string& text) : evaluator_(evaluator), saved_(evaluator.out_) {
    evaluator.out_ = &text;
  }
  ~Capture() { evaluator_.out_ = saved_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

 private:
  Evaluator& evaluator_;
  std::string* saved_;
};

}  // namespace spillway::model::jinja
