#include <cstdio>

#include "model/config.h"
#include "model/gguf.h"
#include "model/inspect.h"
#include "server/cli/commands.h"
#include "server/cli/kv_type.h"
#include "server/cli/load_model.h"

namespace spillway::server {

int inspect_command(const InspectOptions& options) {
  const auto fail = [](const Error& error) {
    std::fprintf(stderr, "spillway: %s\n", error.message.c_str());
    return 1;
  };
  const auto file = model::GgufFile::open(model_path_or_default(options.path));
  if (!file) return fail(file.error());
  const auto config = model::read_model_config(*file);
  if (!config) return fail(config.error());
  const auto type = kv_type_of(options.kv_type);
  if (!type) return fail(type.error());
  const auto groups = model::kv_groups(*config, *type, 16);
  const uint64_t bytes =
      options.kv_device_bytes != 0 ? options.kv_device_bytes : default_kv_bytes();
  std::fputs(model::inspect_text(*file, *config, groups, bytes).c_str(), stdout);
  return 0;
}

}  // namespace spillway::server
