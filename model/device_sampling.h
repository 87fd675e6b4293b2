// Which requests a GPU can draw the token of (kernels/cuda/sampling.h), what it is told of them,
// and what its answer says. The result is that of sample_row() (sampler.h), bit for bit. Pure.
#pragma once

#include <cstdint>

#include "kernels/cuda/sampling.h"
#include "model/sampling.h"

namespace spillway::model {

// False for what is the CPU's alone: penalties, logit_bias, banned tokens, typical_p, the most
// likely tokens, and parameters that are NaN.
bool sampled_on_device(const SampleRequest& request);

// `position` as for sample_row(). REQUIRES: sampled_on_device(request).
kernels::cuda::DeviceDraw device_draw(const SampleRequest& request, uint32_t position);

// `report` is the row's; it is not looked at where the row does not report.
SampleResult device_result(const SampleRequest& request, TokenId token,
                           const kernels::cuda::DeviceReport& report);

}  // namespace spillway::model
