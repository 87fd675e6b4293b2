// The command line: what each subcommand was told.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/cli/device_choice.h"
#include "server/service.h"
#include "server/template_command.h"

namespace spillway::server {

// What loading a model takes; the same flags in serve and chat.
struct ModelOptions {
  std::string path;  // empty: the default model
  std::vector<std::string> served_names;
  std::string chat_template;        // a file, instead of the model's own
  uint32_t context_tokens_max = 0;  // 0: what the model was trained for
  uint32_t sequences_max = 64;
  uint32_t step_tokens_max = 2048;
  uint32_t page_tokens = 16;
  std::string kv_type = "auto";
  DeviceWish device;
  double gpu_utilization = 0.9;           // of a GPU's memory, that all may take together
  uint64_t kv_device_bytes = 0;           // 0: what a GPU has left, or default_kv_bytes()
  std::optional<uint64_t> kv_host_bytes;  // 0: no host tier; none: one where there is a GPU
  std::string kv_host_codec = "identity";
  std::string kv_nvme_dir;  // empty: no NVMe tier
  uint64_t kv_nvme_bytes = uint64_t{8} << 30;
  std::string kv_nvme_write = "auto";
  std::string kv_nvme_codec = "identity";
  double kv_nvme_scrub_s = 1;
  std::string kv_verify = "nvme";
  std::string prefer = "throughput";
  std::string io_backend = "auto";
  uint32_t threads = 0;            // of all CPU devices together; 0: one per core
  uint32_t tensor_parallel = 1;    // devices that share each layer
  uint32_t pipeline_parallel = 1;  // times as many, each with a part of the layers
  bool prefix_caching = true;
  bool batch_invariant = true;  // false, on a GPU: products of many rows by cuBLASLt
  std::string eviction_policy = "value";
  bool trace = false;           // a timeline, from the start
  double pin_share_max = 0.25;  // of the device's pages
  uint32_t pin_tenants = 1;     // each has an equal part of it
  uint32_t preempt_every_steps = 0;
  bool load_all = false;  // for tests: computes nothing that a tier holds
  std::optional<uint64_t> seed;
};

struct ServeOptions {
  ModelOptions model;
  ServerOptions server;
  uint32_t shutdown_seconds = 30;
  std::string log_level = "info";
  std::string trace_file;          // empty: none
  std::vector<std::string> notes;  // on flags without effect, for a person
};

struct ChatOptions {
  ModelOptions model;
  std::string url;  // a running server's; empty: the model runs in this process
  std::string api_key;
  std::string system;
  double temperature = 0.7;
  double top_p = 0.95;
  uint32_t max_tokens = 0;  // of an answer; 0: what the context leaves
};

struct InspectOptions {
  std::string path;
  std::string kv_type = "auto";
  uint64_t kv_device_bytes = 0;
};

// A model without a file.
struct PlanShape {
  uint32_t layers = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;  // 0: as many as heads
  uint32_t head_dim = 0;
  uint64_t weight_bytes = 0;  // 0: not known
  bool given() const { return layers != 0 || heads != 0 || kv_heads != 0 || head_dim != 0; }
};

struct PlanOptions {
  std::string path;
  DeviceWish device;
  double gpu_utilization = 0.9;
  PlanShape shape;
  uint32_t context_tokens = 0;  // of each user; 0: as trained, or 4,096
  uint64_t users = 1;
  std::string kv_type = "auto";
  uint64_t kv_device_bytes = 0;           // 0: what serve takes on this machine
  std::optional<uint64_t> kv_host_bytes;  // none: what serve takes
  std::string kv_host_codec = "identity";
  uint64_t kv_nvme_bytes = 0;
};

struct DoctorOptions {
  std::string path;
  std::string kv_nvme_dir = "/var/tmp";
  std::string kv_type = "auto";
  uint32_t threads = 0;  // 0: one per core
  double seconds = 8;    // of measuring, loading the model aside
};

struct TokenizeOptions {
  std::string path;
  std::string text;
  bool from_stdin = false;
  bool ids_only = false;
  bool no_special = false;
  bool parse_special = false;
};

enum class StoreAction : uint8_t { kList, kVerify, kStats, kRemove };

struct StoreOptions {
  StoreAction action = StoreAction::kList;
  std::string directory;
  // Which pages rm removes: all, or by the beginning of what ls prints.
  bool all = false;
  std::string name_space;
  std::string model;
};

enum class Command : uint8_t {
  kServe,
  kChat,
  kInspect,
  kPlan,
  kDoctor,
  kTokenize,
  kTemplate,
  kStore,
  kVersion
};

struct CommandLine {
  Command command = Command::kServe;
  ServeOptions serve;
  ChatOptions chat;
  InspectOptions inspect;
  PlanOptions plan;
  DoctorOptions doctor;
  TokenizeOptions tokenize;
  TemplateOptions render;
  StoreOptions store;
};

// Parses; prints help or what is wrong. Nothing: exit with `exit_code`.
std::optional<CommandLine> parse_command_line(int argc, char** argv, int& exit_code);

}  // namespace spillway::server
