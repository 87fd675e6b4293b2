#include "model/inspect.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace spillway::model {
namespace {

std::string size_text(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  char text[48];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", size, kUnits[unit]);
  return text;
}

std::string count_text(uint64_t count) {
  char text[48];
  if (count >= 1000000000) {
    std::snprintf(text, sizeof(text), "%.2f billion", static_cast<double>(count) / 1e9);
  } else {
    std::snprintf(text, sizeof(text), "%.1f million", static_cast<double>(count) / 1e6);
  }
  return text;
}

std::string line(const char* label, const std::string& value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%-16s", label);
  return text + value + "\n";
}

const char* kv_type_name(kernels::KvType type) {
  switch (type) {
    case kernels::KvType::kF32:
      return "f32";
    case kernels::KvType::kF16:
      return "f16";
    case kernels::KvType::kBf16:
      return "bf16";
  }
  return "unknown";
}

std::string tensor_lines(const GgufFile& file) {
  struct Total {
    uint64_t count = 0, bytes = 0;
  };
  std::map<std::string, Total> totals;
  uint64_t parameters = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    Total& total = totals[kernels::tensor_type_name(tensor.type)];
    ++total.count;
    total.bytes += tensor.data.size();
    parameters += tensor.elements();
  }
  std::string types;
  for (const auto& [name, total] : totals) {
    types += (types.empty() ? "" : ", ") + name + " x" + std::to_string(total.count) + " (" +
             size_text(total.bytes) + ")";
  }
  return line("parameters", count_text(parameters)) + line("file", size_text(file.file_bytes())) +
         line("tensors", types);
}

std::string rope_text(const RopeConfig& rope) {
  char text[128];
  std::snprintf(text, sizeof(text), "%u dimensions, base %g", rope.dims, double{rope.base});
  std::string result = text;
  if (rope.scaling != RopeScaling::kNone) {
    std::snprintf(text, sizeof(text), ", %s x%g",
                  rope.scaling == RopeScaling::kYarn ? "yarn" : "linear", double{rope.factor});
    result += text;
  }
  return result;
}

std::string group_lines(const ModelConfig& config, std::span<const kernels::KvGroupLayout> groups) {
  std::string text;
  for (size_t g = 0; g < groups.size(); ++g) {
    const kernels::KvGroupLayout& layout = groups[g];
    const std::string kind =
        layout.window == 0 ? "full attention" : "window of " + std::to_string(layout.window);
    text += line(g == 0 ? "layer groups" : "",
                 std::to_string(layout.layers) + " layers, " + kind + ", rope " +
                     rope_text(config.groups[g].rope) + "; KV " + kv_type_name(layout.type) + ", " +
                     size_text(layout.layer_bytes() * layout.layers / layout.page_tokens) +
                     " per token, page of " + std::to_string(layout.page_tokens) + " tokens " +
                     size_text(layout.page_bytes()));
  }
  return text;
}

}  // namespace

uint64_t kv_bytes_of_sequence(std::span<const kernels::KvGroupLayout> groups, uint64_t tokens) {
  uint64_t bytes = 0;
  for (const kernels::KvGroupLayout& layout : groups) {
    uint64_t pages = (tokens + layout.page_tokens - 1) / layout.page_tokens;
    if (layout.window != 0) {
      const uint64_t window_pages =
          (uint64_t{layout.window} + layout.page_tokens - 1) / layout.page_tokens + 1;
      pages = std::min(pages, window_pages);
    }
    bytes += pages * layout.page_bytes();
  }
  return bytes;
}

uint32_t longest_context(std::span<const kernels::KvGroupLayout> groups, uint64_t kv_bytes,
                         uint32_t context_tokens_max) {
  uint32_t low = 0, high = context_tokens_max;  // low fits, high + 1 is not asked for
  while (low < high) {
    const uint32_t middle = low + (high - low + 1) / 2;
    if (kv_bytes_of_sequence(groups, middle) <= kv_bytes) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

std::string inspect_text(const GgufFile& file, const ModelConfig& config,
                         std::span<const kernels::KvGroupLayout> groups, uint64_t kv_bytes) {
  const auto name = file.get_string_or("general.name", "");
  const char* sharing = config.kv_heads == config.heads ? "MHA"
                        : config.kv_heads == 1          ? "MQA"
                                                        : "GQA";
  std::string text = line("model", file.name());
  if (name && !name->empty()) text += line("name", std::string(*name));
  text += line("architecture", std::string(config.architecture->name));
  text += tensor_lines(file);
  text +=
      line("layers", std::to_string(config.layers) + ", width " + std::to_string(config.embedding) +
                         ", MLP " + std::to_string(config.feed_forward));
  text += line("attention", std::string(sharing) + ", " + std::to_string(config.heads) +
                                " query heads, " + std::to_string(config.kv_heads) +
                                " KV heads, head dimension " + std::to_string(config.head_dim));
  text += group_lines(config, groups);
  text += line("vocabulary", std::to_string(config.vocabulary) +
                                 (file.tensor("output.weight") ? "" : " (output tied to input)"));
  text += line("context", std::to_string(config.context_tokens_max) + " tokens trained");
  const uint32_t fits = longest_context(groups, kv_bytes, config.context_tokens_max);
  const uint64_t whole = kv_bytes_of_sequence(groups, config.context_tokens_max);
  text += line("KV memory", size_text(kv_bytes) + " holds a context of " + std::to_string(fits) +
                                " tokens; the whole context takes " + size_text(whole));
  return text;
}

}  // namespace spillway::model
