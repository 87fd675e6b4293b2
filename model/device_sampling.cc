#include "model/device_sampling.h"

#include <cmath>
#include <limits>

#include "model/sampler.h"
#include "model/softmax.h"
#include "runtime/check.h"

namespace spillway::model {
namespace {

bool reports(const SampleRequest& request) {
  return request.want_logprob || request.params == nullptr;
}

}  // namespace

bool sampled_on_device(const SampleRequest& request) {
  if (request.top_logprobs > 0) return false;
  if (request.params == nullptr) return request.scored >= 0;
  const SamplingParams& params = *request.params;
  const bool is_edited = params.repetition_penalty != 1.0f || params.frequency_penalty != 0.0f ||
                         params.presence_penalty != 0.0f || !params.logit_bias.empty() ||
                         !request.banned.empty();
  const bool has_nan =
      std::isnan(params.temperature) || std::isnan(params.top_p) || std::isnan(params.min_p);
  return !is_edited && !has_nan && !(params.typical_p < 1);
}

kernels::cuda::DeviceDraw device_draw(const SampleRequest& request, uint32_t position) {
  CHECK(sampled_on_device(request));
  kernels::cuda::DeviceDraw draw;
  draw.reports = reports(request);
  if (request.params == nullptr) {
    draw.scored = request.scored;
    return draw;
  }
  const SamplingParams& params = *request.params;
  draw.inverse_temperature = is_greedy(params) ? 0 : inverse_temperature(params.temperature);
  draw.top_k = params.top_k > 0 ? static_cast<uint32_t>(params.top_k) : 0;
  draw.top_p = params.top_p;
  draw.min_p = params.min_p;
  draw.seed = params.seed;
  draw.choice = request.choice;
  draw.position = position;
  return draw;
}

SampleResult device_result(const SampleRequest& request, TokenId token,
                           const kernels::cuda::DeviceReport& report) {
  SampleResult result;
  result.token = token;
  if (!reports(request)) return result;
  const bool has_weights = report.maximum > -std::numeric_limits<float>::infinity();
  const double log_sum = has_weights ? std::log(report.weight_sum) : 0;
  result.logprob = token_logprob(report.logit, report.maximum, log_sum);
  result.rank = report.rank;
  return result;
}

}  // namespace spillway::model
