// Any bytes as the body of a request (cases A5, A6, A9): the first byte says for which route.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "server/api/chat.h"
#include "server/api/completion.h"
#include "server/api/tokenize.h"
#include "tests/server/fake_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spillway::server;
  static const auto model = make_fake_model(std::make_shared<FakeBackend>());
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      (void)prepare_chat(model, body, "");
      break;
    case 1:
      (void)prepare_completion(model, body, "");
      break;
    case 2:
      (void)tokenize(*model, body);
      break;
    default:
      (void)detokenize(*model, body);
      break;
  }
  return 0;
}
