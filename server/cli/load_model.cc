#include "server/cli/load_model.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/chat_template.h"
#include "model/gguf.h"
#include "model/tokenizer.h"
#include "runtime/log.h"
#include "scheduler/engine.h"
#include "server/cli/load_runner.h"
#include "server/cli/sizes.h"
#include "server/json_to_jinja.h"
#include "server/version.h"

namespace spillway::server {
namespace {

constexpr const char* kDefaultModel = "SmolLM2-135M-Instruct.Q4_1.gguf";

// The engine and all it stands on; destroyed from the engine down.
class EngineBackend final : public Backend {
 public:
  std::shared_ptr<const model::Tokenizer> tokenizer;
  LoadedRunner model;
  std::unique_ptr<scheduler::Engine> engine;

  Result<scheduler::RequestId> submit(scheduler::Request request,
                                      std::shared_ptr<scheduler::OutputSink> sink) override {
    return engine->submit(std::move(request), std::move(sink));
  }
  void cancel(scheduler::RequestId request) override { engine->cancel(request); }
  void end_session(const std::string& session) override { engine->end_session(session); }
  void prefetch(const std::string& session) override { engine->prefetch(session); }
  void pins(const std::string& tenant, std::function<void(scheduler::PinList)> then) override {
    engine->pins(tenant, std::move(then));
  }
  void unpin(const std::string& tenant, const std::string& id,
             std::function<void(bool)> then) override {
    engine->unpin(tenant, id, std::move(then));
  }
  void reset_prefix_cache(std::function<void(uint64_t pages)> then) override {
    engine->reset_prefix_cache(std::move(then));
  }
  void start_trace() override { engine->start_trace(); }
  void take_trace(Clock::TimePoint begin, std::optional<std::string> tenant,
                  std::function<void(TraceSnapshot)> then) override {
    engine->take_trace(begin, std::move(tenant), std::move(then));
  }
  scheduler::EngineStats stats() const override { return engine->stats(); }
};

Result<std::string> template_source(const ModelOptions& options, const model::GgufFile& file) {
  if (!options.chat_template.empty()) {
    std::ifstream in(options.chat_template, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    if (!in) return Error{ErrorCode::kIo, "cannot read --chat-template " + options.chat_template};
    return text.str();
  }
  auto own = file.get_string_or("tokenizer.chat_template", "");
  if (!own) return own.error();
  if (!own->empty()) return std::string(*own);
  spdlog::info("template model=\"none of its own\" used=\"ChatML\"");
  return std::string(model::ChatTemplate::fallback_source());
}

Result<void> load_template(const ModelOptions& options, const model::GgufFile& file,
                           ServedModel& served) {
  auto source = template_source(options, file);
  if (!source) return source.error();
  auto parsed = model::ChatTemplate::parse(*source);
  if (!parsed) {
    if (!options.chat_template.empty()) return parsed.error();
    // Completions still work: the model is served, and chat says why it does not.
    spdlog::warn("template error=\"{}\"", parsed.error().message);
    served.render_chat = [error = parsed.error()](const boost::json::object&) {
      return Result<std::string>(error);
    };
    return {};
  }
  auto shared = std::make_shared<model::ChatTemplate>(std::move(*parsed));
  served.render_chat = [shared](const boost::json::object& context) {
    return shared->render(to_jinja(context));
  };
  return {};
}

std::string banner(const model::GgufFile& file, const ModelOptions& options,
                   const EngineBackend& backend, const ServedModel& served,
                   uint32_t context_wished) {
  const scheduler::EngineStats stats = backend.engine->stats();
  uint64_t bytes = 0;
  std::string pages;
  for (const auto& pool : stats.pools) {
    bytes += pool.capacity * pool.page_bytes;
    if (!pages.empty()) pages += " + ";
    pages += grouped_digits(pool.capacity);
  }
  std::string text;
  text += "  model    " + served.names.front() + " (" + backend.model.architecture + ", " +
          bytes_text(file.file_bytes()) + ")\n";
  text += "  device   " + backend.model.devices_line + "\n";
  text += "  KV pool  " + bytes_text(bytes) + " in " + pages + " pages of " +
          std::to_string(options.page_tokens) + " tokens, " +
          (options.kv_type == "auto" ? "f16" : options.kv_type) +
          (options.prefix_caching ? "" : ", prefix caching off") + "\n";
  for (const std::string& line : backend.engine->tier_lines()) text += "  " + line + "\n";
  text += "  context  " + grouped_digits(served.context_tokens_max) + " tokens\n";
  if (served.context_tokens_max < context_wished) {
    text += "           shortened from " + grouped_digits(context_wished) +
            ": the KV pool holds no longer one (--kv-device-size makes it larger)\n";
  }
  return text;
}

void fill_served(ServedModel& served, const ModelOptions& options, const std::string& path,
                 const EngineBackend& backend) {
  const std::filesystem::path name(path);
  served.names = options.served_names;
  if (served.names.empty()) {
    served.names = {name.stem().string()};
    served.aliases = {name.filename().string()};
  }
  served.path = name.filename().string();
  served.created = std::time(nullptr);
  served.context_tokens_max = backend.engine->context_tokens_max();
  served.page_tokens = options.page_tokens;
  served.prefix_caching = options.prefix_caching;
  served.choices_max = std::min(128u, options.sequences_max);
  served.system_fingerprint = "fp_" + backend.model.runner->shape().fingerprint.substr(0, 12);
  served.tokenizer = backend.tokenizer;
  served.seed = options.seed;
}

scheduler::EngineOptions engine_options_of(const ModelOptions& options, const LoadedRunner& model,
                                           uint32_t context) {
  scheduler::EngineOptions engine;
  engine.kv_device_bytes = model.kv_device_bytes != 0     ? model.kv_device_bytes
                           : options.kv_device_bytes != 0 ? options.kv_device_bytes
                                                          : default_kv_bytes();
  engine.context_tokens_max = context;
  engine.sequences_max = options.sequences_max;
  engine.step_tokens_max = options.step_tokens_max;
  engine.prefix_caching = options.prefix_caching;
  engine.eviction_policy = *cache::parse_eviction_policy(options.eviction_policy);
  engine.kv_host_bytes =
      options.kv_host_bytes.value_or(default_host_bytes(!model.device->host_reaches_memory()));
  engine.kv_nvme_dir = options.kv_nvme_dir;
  engine.kv_nvme_bytes = options.kv_nvme_bytes;
  if (options.kv_nvme_write == "reuse") engine.kv_nvme_write = cache::WritePolicy::kReuse;
  if (options.kv_nvme_write == "off") engine.kv_nvme_write = cache::WritePolicy::kOff;
  engine.kv_nvme_scrub = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(options.kv_nvme_scrub_s));
  if (options.kv_nvme_codec == "planes") engine.kv_nvme_codec = kernels::PageCodec::kPlanes;
  if (options.kv_host_codec == "planes") engine.kv_host_codec = kernels::PageCodec::kPlanes;
  engine.kv_verify_all = options.kv_verify == "all";
  engine.take_turns = options.prefer == "throughput";
  engine.io_uring = options.io_backend != "threads";
  engine.trace = options.trace;
  engine.pin_share_max = options.pin_share_max;
  engine.pin_tenants = options.pin_tenants;
  engine.preempt_every_steps = options.preempt_every_steps;
  engine.load_all = options.load_all;
  return engine;
}

}  // namespace

std::string model_path_or_default(const std::string& path) {
  if (!path.empty()) return path;
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  std::filesystem::path folder = variable("SPILLWAY_CACHE");
  if (folder.empty()) {
    folder = variable("XDG_CACHE_HOME");
    if (folder.empty()) folder = std::filesystem::path(variable("HOME")) / ".cache";
    folder /= "spillway";
  }
  return (folder / kDefaultModel).string();
}

uint64_t default_kv_bytes() {
  constexpr uint64_t kMost = uint64_t{4} << 30;
  constexpr uint64_t kLeast = uint64_t{256} << 20;
  std::ifstream in("/proc/meminfo");
  std::string key;
  uint64_t kib = 0;
  while (in >> key >> kib) {
    if (key == "MemAvailable:") return std::clamp(kib * 1024 / 4, kLeast, kMost);
    in.ignore(64, '\n');
  }
  return kLeast * 4;
}

Result<LoadedModel> load_model(const ModelOptions& options) {
  const std::string path = model_path_or_default(options.path);
  std::error_code ec;
  if (!std::filesystem::exists(path, ec)) {
    return Error{
        ErrorCode::kNotFound,
        "there is no model file " + path +
            (options.path.empty() ? ": run tools/setup to fetch the default model, or name "
                                    "one with --model FILE"
                                  : ": name a GGUF file with --model FILE")};
  }
  auto file = model::GgufFile::open(path);
  if (!file) return file.error();
  auto tokenizer = model::Tokenizer::create(*file);
  if (!tokenizer) return tokenizer.error();
  auto backend = std::make_shared<EngineBackend>();
  backend->tokenizer = std::move(*tokenizer);
  auto runner = load_runner(*file, path, options);
  if (!runner) return runner.error();
  backend->model = *std::move(runner);
  const uint32_t trained = backend->model.runner->shape().context_tokens_max;
  const uint32_t context = options.context_tokens_max != 0 ? options.context_tokens_max : trained;
  if (context > trained) {
    spdlog::warn("context asked={} trained={}: answers past the trained length may be poor",
                 context, trained);
  }
  const scheduler::EngineOptions engine_options =
      engine_options_of(options, backend->model, context);
  auto engine = scheduler::Engine::start(engine_options, *backend->model.runner,
                                         *backend->model.device, *backend->tokenizer);
  if (!engine) return engine.error();
  backend->engine = std::move(*engine);
  auto served = std::make_shared<ServedModel>();
  fill_served(*served, options, path, *backend);
  if (auto done = load_template(options, *file, *served); !done) return done.error();
  served->backend = backend;
  prepare_served_model(*served);
  LoadedModel loaded{.served = served, .banner = {}};
  loaded.banner = banner(*file, options, *backend, *served, context);
  return loaded;
}

}  // namespace spillway::server
