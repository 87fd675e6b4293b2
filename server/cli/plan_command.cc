#include <algorithm>
#include <cstdio>
#include <string>

#include "model/config.h"
#include "model/gguf.h"
#include "scheduler/memory_ledger.h"
#include "server/cli/commands.h"
#include "server/cli/device_choice.h"
#include "server/cli/gpu_budget.h"
#include "server/cli/gpus.h"
#include "server/cli/kv_type.h"
#include "server/cli/load_model.h"
#include "server/cli/sizes.h"

namespace spillway::server {
namespace {

constexpr uint32_t kContextTokens = 4096;  // of a model whose training nobody told

// What the ledger is about: a model file, or a shape that the command line gave.
struct Subject {
  std::string name;
  std::vector<kernels::KvGroupLayout> groups;
  uint64_t weight_bytes = 0;  // 0: not known
  uint32_t context_trained = 0;
};

Result<Subject> subject_of_shape(const PlanOptions& options, kernels::KvType type) {
  const PlanShape& shape = options.shape;
  const uint32_t kv_heads = shape.kv_heads != 0 ? shape.kv_heads : shape.heads;
  if (shape.layers == 0 || shape.head_dim == 0 || kv_heads == 0) {
    return invalid_argument(
        "a model without a file takes --layers, --head-dim, and --heads or --kv-heads");
  }
  if (!options.path.empty()) {
    return invalid_argument("name a model file or its shape (--layers ...), not both");
  }
  if (shape.heads != 0 && shape.heads % kv_heads != 0) {
    return invalid_argument("--heads must be a multiple of --kv-heads");
  }
  if (shape.head_dim % 2 != 0) return invalid_argument("--head-dim must be even");
  Subject subject;
  const char* sharing = kv_heads == 1             ? ", MQA"
                        : shape.heads == 0        ? ""
                        : kv_heads == shape.heads ? ", MHA"
                                                  : ", GQA";
  subject.name = std::to_string(shape.layers) + " layers, " + std::to_string(kv_heads) +
                 " KV heads of " + std::to_string(shape.head_dim) + sharing;
  subject.groups = {
      {.layers = shape.layers, .kv_heads = kv_heads, .head_dim = shape.head_dim, .type = type}};
  subject.weight_bytes = shape.weight_bytes;
  return subject;
}

Result<Subject> subject_of_file(const PlanOptions& options, kernels::KvType type) {
  const auto file = model::GgufFile::open(model_path_or_default(options.path));
  if (!file) return file.error();
  const auto config = model::read_model_config(*file);
  if (!config) return config.error();
  Subject subject;
  subject.name = file->name();
  subject.groups = model::kv_groups(*config, type, 16);
  for (const model::GgufTensor& tensor : file->tensors())
    subject.weight_bytes += tensor.data.size();
  subject.context_trained = config->context_tokens_max;
  return subject;
}

// What serve would take for KV on this machine: where, and how much.
struct DeviceRoom {
  bool gpu = false;
  uint64_t bytes = 0;
  std::string note = "what serve takes on this machine";
};

// A step's room, of which only the model itself knows.
constexpr uint64_t kStepBytes = uint64_t{512} << 20;

Result<DeviceRoom> device_room(const PlanOptions& options, const Subject& subject) {
  const bool asked = options.device.kind != DeviceWish::Kind::kCpu;
  const auto choice = choose_device(
      options.device, 1, asked ? find_gpus() : Result<std::vector<kernels::GpuInfo>>({}));
  if (!choice) return choice.error();
  DeviceRoom room{.gpu = choice->gpu};
  if (options.kv_device_bytes != 0) {
    room.bytes = options.kv_device_bytes;
    return room;
  }
  room.bytes = default_kv_bytes();
  if (!choice->gpu) return room;
  const auto memory = gpu_memory(choice->index);
  if (!memory) return memory.error();
  const auto left =
      kv_bytes_on_gpu(*memory, options.gpu_utilization, subject.weight_bytes + kStepBytes);
  if (!left) return left.error();
  room.bytes = *left;
  room.note = "about what serve finds left on GPU " + std::to_string(choice->index);
  return room;
}

void print_row(const std::string& label, const std::string& value) {
  std::printf("%-14s%s\n", label.c_str(), value.c_str());
}

std::string users_text(uint64_t users) {
  return grouped_digits(users) + (users == 1 ? " user" : " users");
}

void print_groups(const Subject& subject, const scheduler::Ledger& ledger) {
  for (size_t g = 0; g < ledger.groups.size(); ++g) {
    const kernels::KvGroupLayout& layout = subject.groups[g];
    const scheduler::LedgerGroup& group = ledger.groups[g];
    const std::string attention = layout.window == 0
                                      ? "full attention"
                                      : "a window of " + grouped_digits(layout.window) + " tokens";
    print_row(g == 0 ? "layers" : "",
              std::to_string(layout.layers) + " with " + attention + ": " +
                  bytes_text(group.token_bytes) + " a token, " + grouped_digits(group.user_tokens) +
                  " tokens kept a user (" + bytes_text(group.user_bytes) + ")");
  }
}

void print_tier(const char* name, uint64_t bytes, const scheduler::LedgerTier& tier,
                const char* flag) {
  if (bytes == 0) {
    print_row(name, std::string("none (") + flag + " adds one)");
    return;
  }
  print_row(name, bytes_text(bytes) + ": room for " + users_text(tier.users_max) + "; holds " +
                      grouped_digits(tier.users) + " of them here (" + bytes_text(tier.used_bytes) +
                      ")");
}

// In plain words: who runs, who waits below, and who is computed anew.
void print_outcome(const PlanOptions& options, const scheduler::Ledger& ledger) {
  const uint64_t below = ledger.host.users + ledger.nvme.users;
  std::string text;
  if (ledger.device.users == options.users) {
    text = "all fit on the device at once: nothing spills";
  } else if (ledger.device.users == 0) {
    text = "the device cannot hold one whole context: make --kv-device-size at least " +
           bytes_text(ledger.user_bytes) + ", or the context shorter";
  } else {
    text = users_text(ledger.device.users) + " on the device at once";
    if (ledger.host.users != 0)
      text += "; " + users_text(ledger.host.users) + " spill to host memory";
    if (ledger.nvme.users != 0) text += "; " + users_text(ledger.nvme.users) + " spill to NVMe";
    if (ledger.users_left_out != 0) {
      text += "; no room for " + users_text(ledger.users_left_out) +
              ", whose prefixes are computed anew at each turn";
    }
  }
  print_row("outcome", text);
  if (ledger.users_left_out == 0 || ledger.device.users == 0) return;
  const uint64_t missing = (ledger.users_left_out + below) * ledger.user_bytes;
  print_row("", "about " + bytes_text(missing + missing / 16) +
                    " of --kv-nvme-size would keep what the device does not hold");
}

}  // namespace

int plan_command(const PlanOptions& options) {
  const auto fail = [](const Error& error) {
    std::fprintf(stderr, "spillway: %s\n", error.message.c_str());
    return 1;
  };
  const auto type = kv_type_of(options.kv_type);
  if (!type) return fail(type.error());
  const auto subject =
      options.shape.given() ? subject_of_shape(options, *type) : subject_of_file(options, *type);
  if (!subject) return fail(subject.error());
  scheduler::LedgerQuestion question;
  question.groups = subject->groups;
  question.context_tokens = options.context_tokens != 0     ? options.context_tokens
                            : subject->context_trained != 0 ? subject->context_trained
                                                            : kContextTokens;
  question.users = options.users;
  const auto room = device_room(options, *subject);
  if (!room) return fail(room.error());
  question.device_bytes = room->bytes;
  question.host_bytes = options.kv_host_bytes.value_or(default_host_bytes(room->gpu));
  if (options.kv_host_codec == "planes") question.host_codec = kernels::PageCodec::kPlanes;
  if (!kernels::suits(question.host_codec, *type)) {
    return fail(
        invalid_argument("--kv-host-codec planes is for KV of 16 bits: take "
                         "--kv-cache-dtype f16 or bf16"));
  }
  question.nvme_bytes = options.kv_nvme_bytes;
  question.policy.step_tokens_max = ModelOptions{}.step_tokens_max;
  const auto ledger = scheduler::make_ledger(question);
  if (!ledger) return fail(ledger.error());

  print_row("model", subject->name);
  print_row("weights", subject->weight_bytes == 0
                           ? "not known without a file (--weights-size tells)"
                           : bytes_text(subject->weight_bytes));
  print_groups(*subject, *ledger);
  print_row("a token", bytes_text(ledger->token_bytes) +
                           (ledger->far_token_bytes == ledger->token_bytes
                                ? ""
                                : ", and " + bytes_text(ledger->far_token_bytes) +
                                      " once the window is full"));
  const std::string context = grouped_digits(question.context_tokens) + " tokens";
  print_row("a user", bytes_text(ledger->user_bytes) + " for " + context);
  if (subject->context_trained != 0 && question.context_tokens > subject->context_trained) {
    print_row("", "(the model was trained for " + grouped_digits(subject->context_trained) + ")");
  }
  print_row(users_text(options.users), bytes_text(ledger->all_bytes));
  print_tier("device", question.device_bytes, ledger->device, "--kv-device-size");
  if (options.kv_device_bytes == 0) {
    print_row("", "(" + room->note + "; --kv-device-size says otherwise)");
  }
  if (ledger->groups.size() > 1 && ledger->groups[0].device_bytes != 0) {
    print_row("", "(" + bytes_text(ledger->groups[0].device_bytes) + " of it for full attention, " +
                      bytes_text(ledger->groups[1].device_bytes) + " for windows)");
  }
  print_tier("host", question.host_bytes, ledger->host, "--kv-host-size");
  if (question.host_bytes != 0 && question.host_codec != kernels::PageCodec::kIdentity) {
    print_row("", "(an estimate: " + bytes_text(ledger->host_user_bytes) +
                      " a user, from pages of two models; a page that does not shrink lies there "
                      "as it is)");
  }
  print_tier("nvme", question.nvme_bytes, ledger->nvme, "--kv-nvme-size");
  print_outcome(options, *ledger);
  const uint64_t together = subject->weight_bytes + question.device_bytes + question.host_bytes;
  print_row("memory", bytes_text(together) + (subject->weight_bytes == 0
                                                  ? " for device and host tier, weights not counted"
                                                  : " for weights, device and host tier"));
  return 0;
}

}  // namespace spillway::server
