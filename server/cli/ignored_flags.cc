#include "server/cli/ignored_flags.h"

#include <CLI/CLI.hpp>

namespace spillway::server {
namespace {

struct IgnoredFlag {
  const char* names;
  bool takes_value;
  const char* instead;  // what does the job here, or why there is none to do
};

constexpr IgnoredFlag kFlags[] = {
    {"--dtype", true, "the file says its own formats; --kv-cache-dtype sets the cache's"},
    {"--quantization,-q", true, "the file says its own formats"},
    {"--load-format", true, "models are GGUF files"},
    {"--tokenizer", true, "the GGUF file brings its tokenizer"},
    {"--download-dir", true, "models are local files"},
    {"--trust-remote-code", false, "no code comes with a model"},
    {"--enforce-eager", false, "nothing is captured or compiled here"},
    {"--swap-space", true, "preempted sequences come back through the cache"},
    {"--enable-chunked-prefill,--no-enable-chunked-prefill", false,
     "long prompts are always computed in chunks (--max-num-batched-tokens)"},
    {"--prefix-caching-hash-algo", true, "keys are XXH3-128, and token ids are always compared"},
    {"--kv-events-config", true, "no events are published; GET /debug/cache shows the cache"},
    {"--enable-prompt-tokens-details", false, "cached_tokens is always reported"},
    {"--disable-log-requests,--no-enable-log-requests", false, "--log-level warn does that"},
    {"--disable-log-stats", false, "statistics are at /metrics only"},
    {"--generation-config", true, "sampling defaults are the API's"},
    {"--sse-ping-interval", true, "streams carry no pings"},
};

}  // namespace

void add_ignored_flags(CLI::App& app, std::vector<std::string>& notes) {
  for (const IgnoredFlag& flag : kFlags) {
    const std::string names = flag.names;
    const std::string note =
        names.substr(0, names.find(',')) + " has no effect here: " + flag.instead;
    CLI::Option* option = nullptr;
    if (flag.takes_value) {
      option = app.add_option_function<std::string>(
          names, [&notes, note](const std::string&) { notes.push_back(note); }, flag.instead);
      option->type_name("...");
    } else {
      option =
          app.add_flag_callback(names, [&notes, note] { notes.push_back(note); }, flag.instead);
    }
    option->group("Taken for vLLM's sake, without effect");
  }
}

}  // namespace spillway::server
