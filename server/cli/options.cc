#include "server/cli/options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "server/api/json_reader.h"
#include "server/cli/help_format.h"
#include "server/cli/ignored_flags.h"
#include "server/cli/sizes.h"
#include "server/version.h"

namespace spillway::server {
namespace {

constexpr uint32_t kParallelMax = 16;
constexpr const char* kModelGroup = "Model and cache";

// Takes "512M" into a number of bytes.
template <class Bytes>
void add_size(CLI::App& app, const std::string& names, Bytes& bytes, const std::string& help) {
  app.add_option_function<std::string>(
         names,
         [&bytes](const std::string& text) {
           auto parsed = parse_bytes(text);
           if (!parsed) throw CLI::ValidationError(parsed.error().message);
           bytes = *parsed;
         },
         help)
      ->take_last()
      ->type_name("SIZE");
}

void add_model_path(CLI::App& app, std::string& path) {
  app.add_option(
         "model,-m,--model", path,
         "GGUF file, also as the first word without a flag (default: SmolLM2-135M-Instruct)")
      ->type_name("FILE");
}

void add_device_flags(CLI::App& app, DeviceWish& device, double& utilization,
                      const std::string& group) {
  app.add_option_function<std::string>(
         "--device",
         [&device](const std::string& text) {
           const auto wish = parse_device(text);
           if (!wish) throw CLI::ValidationError("--device", wish.error().message);
           device = *wish;
         },
         "Where the model runs: on a GPU (cuda, or cuda:1 for another than the first), on the "
         "processor (cpu), or on a GPU where one can be used (auto, the default)")
      ->take_last()
      ->type_name("auto|cpu|cuda[:INDEX]")
      ->group(group);
  app.add_option("--gpu-memory-utilization", utilization,
                 "Share of a GPU's memory that all which runs there may take; KV pages get what "
                 "weights and a step leave of it. Without effect on the processor, or with "
                 "--kv-device-size")
      ->check(CLI::Range(0.05, 1.0))
      ->check([](const std::string& text) {  // "nan" is in every range
        return text.find_first_of("nN") == std::string::npos ? "" : "is no share";
      })
      ->type_name("SHARE")
      ->capture_default_str()
      ->group(group);
}

// Who computes, and how.
void add_compute_flags(CLI::App& app, ModelOptions& model) {
  const std::string group = kModelGroup;
  app.add_option("--threads,-t", model.threads,
                 "Compute threads, of all CPU devices together; with a GPU, those that load the "
                 "weights (default: one per core)")
      ->check(CLI::Range(1u, 1024u))
      ->group(group);
  app.add_option("--tensor-parallel-size,--tp", model.tensor_parallel,
                 "Devices that share the heads and columns of each layer")
      ->check(CLI::Range(1u, kParallelMax))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  app.add_option("--pipeline-parallel-size,--pp", model.pipeline_parallel,
                 "Stages of so many devices, each with a part of the layers")
      ->check(CLI::Range(1u, kParallelMax))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  app.add_flag("--batch-invariant,!--no-batch-invariant", model.batch_invariant,
               "The same bits for a request whatever else the server computes (on unless switched "
               "off). Off gives that up for speed, on a GPU alone: products of many rows go to "
               "cuBLASLt, whose order of sums hangs on the batch; answers may then differ from one "
               "time to the next, and KV pages are not shared with servers that have it on")
      ->group(group);
}

void add_model_flags(CLI::App& app, ModelOptions& model) {
  const std::string group = kModelGroup;
  app.add_option("--max-model-len,-c", model.context_tokens_max,
                 "Most tokens of prompt and answer together (default: as trained)")
      ->check(CLI::Range(1u, 1u << 24))
      ->type_name("TOKENS")
      ->group(group);
  add_size(app, "--kv-device-size,--kv-cache-memory-bytes", model.kv_device_bytes,
           "Memory for KV pages: 512M, 4G (default: of the processor's a quarter of what is free, "
           "at most 4G; of a GPU's what --gpu-memory-utilization leaves)");
  app.get_option("--kv-device-size")->group(group);
  app.add_option("--kv-cache-dtype", model.kv_type, "Number format of the KV cache")
      ->check(CLI::IsMember({"auto", "f16", "bf16", "f32", "float16", "bfloat16", "float32"}))
      ->type_name("auto|f16|bf16|f32")
      ->capture_default_str()
      ->group(group);
  app.add_option("--block-size,--page-size", model.page_tokens,
                 "Tokens of a KV page, a multiple of 16")
      ->check(CLI::IsMember({16u, 32u, 64u, 128u}))
      ->type_name("16|32|64|128")
      ->capture_default_str()
      ->group(group);
  app.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", model.prefix_caching,
               "Reuse the KV pages of prompts seen before (on unless switched off)")
      ->group(group);
  app.add_option("--eviction-policy", model.eviction_policy,
                 "Which cached pages go first when memory is full: the least recently used (lru), "
                 "an S3-FIFO (s3fifo), or those worth least (value)")
      ->check(CLI::IsMember({"lru", "s3fifo", "value"}))
      ->type_name("lru|s3fifo|value")
      ->capture_default_str()
      ->group(group);
  app.add_option_function<std::string>(
         "--kv-pin-limit",
         [&model](const std::string& text) {
           const auto share = parse_share(text);
           if (!share) throw CLI::ValidationError(share.error().message);
           model.pin_share_max = *share;
         },
         "Most of the KV memory that pinned prefixes may cover (default: 25%)")
      ->take_last()
      ->type_name("PERCENT")
      ->group(group);
  add_compute_flags(app, model);
  app.add_option("--chat-template", model.chat_template,
                 "Jinja file instead of the model's own; a model that has none is given ChatML")
      ->check(CLI::ExistingFile)
      ->type_name("FILE")
      ->group(group);
  app.add_option_function<int64_t>(
         "--seed", [&model](int64_t seed) { model.seed = static_cast<uint64_t>(seed); },
         "Seed of requests that name none (default: a new one each)")
      ->group(group);
}

void add_host_codec(CLI::App& app, std::string& codec) {
  app.add_option("--kv-host-codec", codec,
                 "How pages lie in host memory: as they are, or without loss in fewer bytes "
                 "(planes), which takes processor time")
      ->check(CLI::IsMember({"identity", "planes"}))
      ->type_name("identity|planes")
      ->capture_default_str();
}

void add_tier_flags(CLI::App& app, ModelOptions& model) {
  const std::string group = "Tiers below the device";
  add_size(app, "--kv-nvme-size", model.kv_nvme_bytes,
           "Most bytes on disk, index included (default: 8G, once a directory is given)");
  app.get_option("--kv-nvme-size")->group(group);
  app.add_option("--kv-nvme-dir", model.kv_nvme_dir,
                 "Directory on a local disk that keeps KV pages, over restarts too")
      ->type_name("DIR")
      ->group(group);
  app.add_option("--kv-nvme-write", model.kv_nvme_write,
                 "What is written: everything while there is room and then what is used again, "
                 "only what is used again, or nothing")
      ->check(CLI::IsMember({"auto", "reuse", "off"}))
      ->type_name("auto|reuse|off")
      ->capture_default_str()
      ->group(group);
  app.add_option("--kv-nvme-codec", model.kv_nvme_codec,
                 "How pages lie on disk: as they are, or without loss in fewer bytes (planes), "
                 "which takes processor time")
      ->check(CLI::IsMember({"identity", "planes"}))
      ->type_name("identity|planes")
      ->capture_default_str()
      ->group(group);
  app.add_option("--kv-nvme-scrub", model.kv_nvme_scrub_s,
                 "While idle, seconds between two stored pages that are read to see whether they "
                 "still verify; 0: none is")
      ->check(CLI::Range(0.0, 86400.0))
      ->check([](const std::string& text) {  // "nan" is in every range
        return text.find_first_of("nN") == std::string::npos ? "" : "is no number of seconds";
      })
      ->type_name("SECONDS")
      ->capture_default_str()
      ->group(group);
  add_size(app, "--kv-host-size", model.kv_host_bytes,
           "Host memory for KV pages; of use where the device has memory of its own, or with a "
           "codec (default: 0; with a GPU a quarter of what is free, at most 4G)");
  app.get_option("--kv-host-size")->group(group);
  add_host_codec(app, model.kv_host_codec);
  app.get_option("--kv-host-codec")->group(group);
  app.add_option("--kv-verify", model.kv_verify,
                 "Which pages are checked when they come up: those from NVMe, or all")
      ->check(CLI::IsMember({"nvme", "all"}))
      ->type_name("nvme|all")
      ->capture_default_str()
      ->group(group);
  app.add_option("--prefer", model.prefer,
                 "With more streams than the device holds: all take turns, their pages swapped out "
                 "and in, as far as that pays (throughput); or those that run keep their pace and "
                 "the others wait for a place (latency)")
      ->check(CLI::IsMember({"latency", "throughput"}))
      ->type_name("latency|throughput")
      ->capture_default_str()
      ->group(group);
  app.add_option("--io-backend", model.io_backend,
                 "io_uring where it works, or a few threads with pread and pwrite")
      ->check(CLI::IsMember({"auto", "threads"}))
      ->type_name("auto|threads")
      ->capture_default_str()
      ->group(group);
}

// "a,b" or vLLM's JSON list '["a", "b"]'.
std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> out;
  if (auto parsed = text.starts_with('[') ? read_json(text) : ApiError{}; parsed) {
    for (const json::value& item : *parsed->if_array()) {
      if (item.is_string()) out.emplace_back(item.get_string().data(), item.get_string().size());
    }
    return out;
  }
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    if (comma > at) out.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return out;
}

void add_network_flags(CLI::App& app, ServerOptions& server) {
  const std::string group = "Network";
  app.add_option("--host", server.host, "Address to listen on; 0.0.0.0 for all")
      ->capture_default_str()
      ->group(group);
  app.add_option("--port", server.port, "Port; 0 for any free one")
      ->capture_default_str()
      ->group(group);
  app.add_option("--api-key", server.api_keys,
                 "Key that clients must send; repeat for several (also SPILLWAY_API_KEY)")
      ->type_name("KEY")
      ->allow_extra_args(false)
      ->check([](const std::string& key) {
        return key.empty() ? std::string("must not be empty") : std::string();
      })
      ->group(group);
  app.add_option("--ssl-certfile", server.certfile, "Certificate chain (PEM): serves HTTPS")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--ssl-keyfile", server.keyfile, "Its private key (PEM)")
      ->type_name("FILE")
      ->group(group);
  app.add_option_function<std::vector<std::string>>(
         "--allowed-origins",
         [&server](const std::vector<std::string>& lists) {
           for (const std::string& list : lists) {
             for (std::string& origin : split_list(list)) {
               server.allowed_origins.push_back(std::move(origin));
             }
           }
         },
         "Web pages elsewhere that may ask: https://a.example,https://b.example or *")
      ->type_name("ORIGINS")
      ->allow_extra_args(false)
      ->group(group);
}

void add_serve(CLI::App& app, ServeOptions& options) {
  add_model_path(app, options.model.path);
  add_device_flags(app, options.model.device, options.model.gpu_utilization, kModelGroup);
  add_model_flags(app, options.model);
  add_tier_flags(app, options.model);
  const std::string group = "Serving";
  app.add_option("--served-model-name", options.model.served_names,
                 "Names that requests may use; the first is reported (default: the file's name)")
      ->type_name("NAME")
      ->group(group);
  app.add_option("--max-num-seqs,--parallel", options.model.sequences_max, "Most sequences at once")
      ->check(CLI::Range(1u, 4096u))
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-num-batched-tokens", options.model.step_tokens_max,
                 "Token budget of one step")
      ->check(CLI::Range(16u, 65536u))
      ->capture_default_str()
      ->group(group);
  app.add_option("--shutdown-timeout", options.shutdown_seconds,
                 "Seconds that answers in progress have when the server is told to stop")
      ->capture_default_str()
      ->group(group);
  app.add_option("--log-level", options.log_level, "trace, debug, info, warn, error or off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}))
      ->capture_default_str()
      ->type_name("LEVEL")
      ->group(group);
  app.add_option("--trace", options.trace_file,
                 "Write a timeline of the last steps, transfers and waits here when the server is "
                 "stopped; ui.perfetto.dev opens it")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--test-preempt-every-steps", options.model.preempt_every_steps)->group("");
  app.add_flag("--test-load-all", options.model.load_all)->group("");
  add_network_flags(app, options.server);
  add_ignored_flags(app, options.notes);
}

void add_chat(CLI::App& app, ChatOptions& options) {
  add_model_path(app, options.model.path);
  add_device_flags(app, options.model.device, options.model.gpu_utilization, kModelGroup);
  add_model_flags(app, options.model);
  app.add_option("--url", options.url,
                 "Chat with the server at this address (http://127.0.0.1:8000) instead of loading "
                 "a model")
      ->type_name("URL");
  app.add_option("--api-key", options.api_key, "Key for that server (also SPILLWAY_API_KEY)")
      ->type_name("KEY");
  add_tier_flags(app, options.model);
  app.add_option("--system", options.system, "System message")->type_name("TEXT");
  app.add_option("--temperature", options.temperature, "0 is greedy")
      ->check(CLI::Range(0.0, 2.0))
      ->capture_default_str();
  app.add_option("--top-p", options.top_p, "Draw from the likeliest tokens of this share together")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--max-tokens", options.max_tokens, "Most tokens of an answer");
}

void add_tools(CLI::App& app, CommandLine& out) {
  CLI::App* inspect = app.add_subcommand("inspect", "Say what a model file holds and needs");
  add_model_path(*inspect, out.inspect.path);
  inspect
      ->add_option("--kv-cache-dtype", out.inspect.kv_type,
                   "Number format of the KV cache, to say what a token takes (default: auto)")
      ->check(CLI::IsMember({"auto", "f16", "bf16", "f32"}))
      ->type_name("auto|f16|bf16|f32");
  add_size(*inspect, "--kv-device-size", out.inspect.kv_device_bytes,
           "Memory for KV pages, to say which context fits");

  CLI::App* tokenize = app.add_subcommand("tokenize", "Print a text's tokens, one a line");
  tokenize->add_option("-m,--model", out.tokenize.path, "GGUF file")->type_name("FILE");
  tokenize->add_option("text", out.tokenize.text, "The text; without it, standard input");
  tokenize->add_flag("--ids", out.tokenize.ids_only, "Only the ids, as a JSON list");
  tokenize->add_flag("--no-bos", out.tokenize.no_special, "Add no BOS or EOS");
  tokenize->add_flag("--parse-special", out.tokenize.parse_special,
                     "Spellings of control tokens become those tokens");

  CLI::App* render = app.add_subcommand("template", "Render a chat template");
  render->add_option("template", out.render.template_path, "Jinja file")->required();
  render
      ->add_option("context", out.render.context_path,
                   "JSON file: messages, tools, add_generation_prompt, bos_token, ...")
      ->required();
  app.add_subcommand("version", "Print the version");
}

void add_kv_type(CLI::App& app, std::string& type) {
  app.add_option("--kv-cache-dtype", type, "Number format of the KV cache")
      ->check(CLI::IsMember({"auto", "f16", "bf16", "f32", "float16", "bfloat16", "float32"}))
      ->type_name("auto|f16|bf16|f32")
      ->capture_default_str();
}

void add_plan(CLI::App& app, PlanOptions& options) {
  CLI::App* plan = app.add_subcommand("plan", "Say how much memory a model and its users take");
  add_model_path(*plan, options.path);
  add_device_flags(*plan, options.device, options.gpu_utilization, "Options");
  plan->add_option("--context,-c", options.context_tokens,
                   "Tokens of each user (default: as trained; 4096 without a file)")
      ->check(CLI::Range(1u, 1u << 24))
      ->type_name("TOKENS");
  plan->add_option("--users,-u", options.users, "Users with a context of their own")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 32))
      ->capture_default_str();
  add_kv_type(*plan, options.kv_type);
  add_size(*plan, "--kv-device-size,--kv-cache-memory-bytes", options.kv_device_bytes,
           "Memory for KV pages (default: what serve takes on this machine)");
  add_size(*plan, "--kv-host-size", options.kv_host_bytes,
           "Host memory for KV pages (default: what serve takes on this machine)");
  add_host_codec(*plan, options.kv_host_codec);
  add_size(*plan, "--kv-nvme-size", options.kv_nvme_bytes, "Disk for KV pages (default: 0)");
  const std::string group = "A model that you do not have";
  const auto add_count = [&](const char* name, uint32_t& count, const char* help) {
    plan->add_option(name, count, help)->check(CLI::Range(1u, 1u << 16))->group(group);
  };
  add_count("--layers", options.shape.layers, "Its layers");
  add_count("--heads", options.shape.heads, "Its query heads");
  add_count("--kv-heads", options.shape.kv_heads, "Its KV heads (default: as many as heads)");
  add_count("--head-dim", options.shape.head_dim, "Numbers of a head");
  add_size(*plan, "--weights-size", options.shape.weight_bytes, "Its weights");
  plan->get_option("--weights-size")->group(group);
}

void add_doctor(CLI::App& app, DoctorOptions& options) {
  CLI::App* doctor = app.add_subcommand(
      "doctor", "Measure this machine: when loading beats computing, which sizes suit");
  add_model_path(*doctor, options.path);
  doctor
      ->add_option("--kv-nvme-dir", options.kv_nvme_dir,
                   "Directory on the disk to measure; a temporary file in it is removed again")
      ->type_name("DIR")
      ->capture_default_str();
  add_kv_type(*doctor, options.kv_type);
  doctor->add_option("--threads,-t", options.threads, "Compute threads (default: one per core)")
      ->check(CLI::Range(1u, 1024u));
  doctor->add_option("--seconds", options.seconds, "How long to measure; longer is steadier")
      ->check(CLI::Range(0.5, 600.0))
      ->capture_default_str();
}

void add_store(CLI::App& app, StoreOptions& options) {
  CLI::App* store = app.add_subcommand("store", "Look at the pages kept on NVMe, or remove some");
  store->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, StoreAction action) {
    CLI::App* sub = store->add_subcommand(name, help);
    sub->add_option("--kv-nvme-dir", options.directory, "Where the store is")
        ->required()
        ->check(CLI::ExistingDirectory)
        ->type_name("DIR");
    sub->callback([&options, action] { options.action = action; });
    return sub;
  };
  add("ls", "Models and namespaces, and what they hold", StoreAction::kList);
  add("verify", "Read every page; remove those whose bytes do not verify (exit code 1)",
      StoreAction::kVerify);
  add("stats", "Sizes and counts", StoreAction::kStats);
  CLI::App* rm = add("rm", "Remove pages", StoreAction::kRemove);
  auto* which = rm->add_option_group("which", "What to remove");
  which->add_flag("--all", options.all, "All pages");
  const auto not_empty = [](const std::string& text) {
    return text.empty() ? std::string("must not be empty") : std::string();
  };
  which->add_option("--namespace", options.name_space, "Of namespaces that begin so in ls")
      ->check(not_empty)
      ->type_name("ID");
  which->add_option("--of-model", options.model, "Of models that begin so in ls")
      ->check(not_empty)
      ->type_name("ID");
  which->require_option(1);
}

}  // namespace

std::optional<CommandLine> parse_command_line(int argc, char** argv, int& exit_code) {
  CommandLine out;
  CLI::App app(
      "Spillway serves language models from GGUF files, and never computes a prefix twice.",
      "spillway");
  app.formatter(std::make_shared<HelpFormat>());  // before the subcommands, which inherit it
  app.require_subcommand(1);
  app.set_version_flag("--version", "spillway " + std::string(version()));
  CLI::App* serve = app.add_subcommand("serve", "Serve a model over HTTP (OpenAI's API)");
  add_serve(*serve, out.serve);
  CLI::App* chat = app.add_subcommand("chat", "Chat with a model in this terminal");
  add_chat(*chat, out.chat);
  add_plan(app, out.plan);
  add_doctor(app, out.doctor);
  add_tools(app, out);
  add_store(app, out.store);
  app.footer(
      "Try:  spillway serve --port 8000\n      spillway chat\n"
      "      spillway serve --help");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    exit_code = code == 0 ? 0 : 2;
    return std::nullopt;
  }
  if (const char* key = std::getenv("SPILLWAY_API_KEY"); key != nullptr && *key != '\0') {
    out.serve.server.api_keys.emplace_back(key);
    if (out.chat.api_key.empty()) out.chat.api_key = key;
  }
  out.serve.model.pin_tenants =
      static_cast<uint32_t>(std::max<size_t>(out.serve.server.api_keys.size(), 1));
  const std::string name = app.get_subcommands().front()->get_name();
  out.command = name == "serve"      ? Command::kServe
                : name == "chat"     ? Command::kChat
                : name == "inspect"  ? Command::kInspect
                : name == "plan"     ? Command::kPlan
                : name == "doctor"   ? Command::kDoctor
                : name == "tokenize" ? Command::kTokenize
                : name == "template" ? Command::kTemplate
                : name == "store"    ? Command::kStore
                                     : Command::kVersion;
  return out;
}

}  // namespace spillway::server
