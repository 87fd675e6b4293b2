// Messages to prompt text by the model's own template, in a sandbox (steps, depth and output are
// bounded). Immutable after construction: any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "model/jinja/value.h"
#include "runtime/result.h"

namespace spillway::model {

class ChatTemplate {
 public:
  // Parses a Jinja template as Hugging Face sets it up (trim_blocks, lstrip_blocks, loop controls).
  // The error names line and cause.
  static Result<ChatTemplate> parse(std::string_view source);

  // `context` is a mapping: messages, tools, add_generation_prompt, bos_token, ... Returns the
  // text, or the template's own raise_exception message, or which limit was passed.
  Result<std::string> render(const jinja::Value& context) const;

  // The documented template for models that carry none (ChatML).
  static std::string_view fallback_source();

  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::model
