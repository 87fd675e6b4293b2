// What must be equal for two processes to share KV pages: RunnerShape::fingerprint.
#pragma once

#include <string>

#include "kernels/device.h"
#include "model/digest.h"
#include "model/forward.h"
#include "model/gguf.h"
#include "model/runner.h"
#include "runtime/result.h"

namespace spillway::model {

// Adds what the file says that KV depends on: every tensor's name, type, shape and bytes, and all
// metadata of the architecture and the tokenizer (names and chat templates are left out).
void add_model(Digest& digest, const GgufFile& file);

// Adds the format of the pages.
void add_layout(Digest& digest, const std::vector<kernels::KvGroupLayout>& groups);

// Adds what this machine's kernels compute: log-probabilities of a short fixed text, over pages of
// its own, which end bound to `forward`. Two arithmetics that round differently anywhere in the
// pass give other bits. Fails if the device has no memory for the pages.
Result<void> add_arithmetic(Digest& digest, Forward& forward, const RunnerShape& shape,
                            kernels::Device& device);

}  // namespace spillway::model
