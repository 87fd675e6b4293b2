// What must be equal for two processes to share KV pages: RunnerShape::fingerprint.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "model/digest.h"
#include "model/gguf.h"
#include "model/runner.h"
#include "runtime/result.h"

namespace spillway::model {

// Adds what the file says that KV depends on: every tensor's name, type, shape and bytes, and all
// metadata of the architecture and the tokenizer (names and chat templates are left out).
void add_model(Digest& digest, const GgufFile& file);

// Adds the format of the pages.
void add_layout(Digest& digest, const std::vector<kernels::KvGroupLayout>& groups);

// Runs a step on pages (group) at `bases`, to its end. The result has its shape.
using ProbeStep = std::function<Result<>(const std::vector<std::byte*>& bases,
                                         const StepBatch& batch, StepResult& result)>;

// Adds what this machine's kernels compute: log-probabilities of a short fixed text, by `run`, over
// pages that are gone afterwards. Two arithmetics that round differently anywhere in the pass give
// other bits. Fails if the device has no memory for the pages, or as `run` does.
Result<> add_arithmetic(Digest& digest, const RunnerShape& shape, kernels::Device& device,
                        const ProbeStep& run);

}  // namespace spillway::model
