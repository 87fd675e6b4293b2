#include "model/chat_template.h"

#include "model/jinja/evaluator.h"
#include "model/jinja/parser.h"
#include "model/jinja/resolver.h"
#include "model/jinja/run.h"
#include "model/jinja/unicode.h"

namespace spillway::model {
namespace {

// Templates come with model files; the largest real one has 20 kB.
constexpr size_t kSourceBytesMax = size_t{1} << 20;

Error to_error(const jinja::Failure& failure) {
  std::string message = "chat template";
  if (failure.line > 0) message += ", line " + std::to_string(failure.line);
  return {failure.limit ? ErrorCode::kResourceExhausted : ErrorCode::kInvalidArgument,
          message + ": " + failure.message};
}

}  // namespace

struct ChatTemplate::Impl {
  jinja::Template parsed;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  if (source.size() > kSourceBytesMax) {
    return invalid_argument("chat template: " + std::to_string(source.size()) + " bytes, at most " +
                            std::to_string(kSourceBytesMax) + " are accepted");
  }
  if (!jinja::valid_utf8(source)) return invalid_argument("chat template: not valid UTF-8");
  try {
    auto impl = std::make_unique<Impl>();
    impl->parsed = jinja::parse_template(source);
    jinja::resolve(impl->parsed);
    return ChatTemplate(std::move(impl));
  } catch (const jinja::Failure& failure) {
    return to_error(failure);
  }
}

Result<std::string> ChatTemplate::render(const jinja::Value& context) const {
  if (!context.is(jinja::Kind::kDict)) {
    return invalid_argument("chat template: the context must be a mapping");
  }
  jinja::Run run(jinja::Limits{});
  try {
    return jinja::Evaluator(run, context).render(impl_->parsed);
  } catch (const jinja::Failure& failure) {
    return to_error(failure);
  }
}

// ChatML, which most chat models without a template of their own were trained on.
std::string_view ChatTemplate::fallback_source() {
  return "{% for message in messages %}"
         "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
         "{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
}

}  // namespace spillway::model
