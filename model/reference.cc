#include "model/reference.h"

#include <algorithm>
#include <cmath>

#include "model/rope.h"

namespace spillway::model {
namespace {

using Row = std::vector<float>;

// y = W x + b, row by row.
std::vector<Row> multiply_all(const GgufTensor& matrix, const std::optional<GgufTensor>& bias,
                              const std::vector<Row>& rows) {
  const std::vector<float> weights = tensor_floats(matrix);
  const Row initial = bias ? tensor_floats(*bias) : Row(matrix.dims[1]);
  std::vector<Row> results;
  for (const Row& x : rows) {
    Row y = initial;
    for (size_t o = 0; o < y.size(); ++o) {
      double sum = 0;
      for (size_t i = 0; i < x.size(); ++i) sum += double{weights[o * x.size() + i]} * x[i];
      y[o] += static_cast<float>(sum);
    }
    results.push_back(std::move(y));
  }
  return results;
}

void norm(std::span<float> x, const GgufTensor& weight, float epsilon) {
  double squares = 0;
  for (float value : x) squares += double{value} * value;
  const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
  const Row weights = tensor_floats(weight);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(x[i] * factor * weights[i]);
}

void rotate(std::span<float> head, const kernels::RopeTable& rope, uint32_t position) {
  for (size_t i = 0; i < rope.inverse_frequencies.size(); ++i) {
    const double angle = position * rope.inverse_frequencies[i];
    const bool pairs = rope.order == kernels::RopeOrder::kPairs;
    float& a = head[pairs ? 2 * i : i];
    float& b = head[pairs ? 2 * i + 1 : i + rope.dims / 2];
    const double cosine = std::cos(angle) * rope.magnitude;
    const double sine = std::sin(angle) * rope.magnitude;
    const double turned = a * cosine - b * sine;
    b = static_cast<float>(a * sine + b * cosine);
    a = static_cast<float>(turned);
  }
}

double soft_cap(double x, double cap) { return cap > 0 ? cap * std::tanh(x / cap) : x; }

// One query head over all earlier positions that it sees.
void attend(const ModelConfig& config, uint32_t window, const std::vector<Row>& keys,
            const std::vector<Row>& values, std::span<const float> query, size_t kv_offset,
            size_t position, std::span<float> out) {
  const size_t first = window != 0 && position + 1 > window ? position + 1 - window : 0;
  std::vector<double> weights;
  for (size_t t = first; t <= position; ++t) {
    double score = 0;
    for (size_t d = 0; d < query.size(); ++d) score += double{query[d]} * keys[t][kv_offset + d];
    weights.push_back(soft_cap(score * config.query_scale, config.attention_soft_cap));
  }
  const double greatest = *std::max_element(weights.begin(), weights.end());
  double total = 0;
  for (double& weight : weights) {
    weight = std::exp(weight - greatest);
    total += weight;
  }
  for (size_t d = 0; d < out.size(); ++d) {
    double sum = 0;
    for (size_t t = first; t <= position; ++t) {
      sum += weights[t - first] * values[t][kv_offset + d];
    }
    out[d] = static_cast<float>(sum / total);
  }
}

std::vector<Row> attention(const ModelConfig& config, uint32_t layer_index,
                           const LayerTensors& layer, const kernels::RopeTable& rope,
                           const std::vector<Row>& normed) {
  std::vector<Row> q = multiply_all(layer.query, layer.query_bias, normed);
  std::vector<Row> k = multiply_all(layer.key, layer.key_bias, normed);
  const std::vector<Row> v = multiply_all(layer.value, layer.value_bias, normed);
  const size_t dim = config.head_dim;
  for (size_t t = 0; t < normed.size(); ++t) {
    for (uint32_t h = 0; h < config.heads; ++h) {
      std::span<float> head = std::span(q[t]).subspan(h * dim, dim);
      if (layer.query_norm) norm(head, *layer.query_norm, config.norm_epsilon);
      rotate(head, rope, static_cast<uint32_t>(t));
    }
    for (uint32_t h = 0; h < config.kv_heads; ++h) {
      std::span<float> head = std::span(k[t]).subspan(h * dim, dim);
      if (layer.key_norm) norm(head, *layer.key_norm, config.norm_epsilon);
      rotate(head, rope, static_cast<uint32_t>(t));
    }
  }
  std::vector<Row> out(normed.size(), Row(config.query_width()));
  const uint32_t window = config.groups[config.places[layer_index].group].window;
  for (size_t t = 0; t < normed.size(); ++t) {
    for (uint32_t h = 0; h < config.heads; ++h) {
      const size_t kv_offset = h / (config.heads / config.kv_heads) * dim;
      attend(config, window, k, v, std::span(q[t]).subspan(h * dim, dim), kv_offset, t,
             std::span(out[t]).subspan(h * dim, dim));
    }
  }
  return multiply_all(layer.attention_output, layer.attention_output_bias, out);
}

std::vector<Row> mlp(const ModelConfig& config, const LayerTensors& layer,
                     const std::vector<Row>& normed) {
  std::vector<Row> gate = multiply_all(layer.gate, std::nullopt, normed);
  const std::vector<Row> up = multiply_all(layer.up, std::nullopt, normed);
  for (size_t t = 0; t < gate.size(); ++t) {
    for (size_t i = 0; i < gate[t].size(); ++i) {
      const double g = gate[t][i];
      const double silu = g / (1 + std::exp(-g));
      const double gelu =
          0.5 * g * (1 + std::tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)));
      const bool is_gelu = config.architecture->activation == Activation::kGelu;
      gate[t][i] = static_cast<float>((is_gelu ? gelu : silu) * up[t][i]);
    }
  }
  return multiply_all(layer.down, std::nullopt, gate);
}

void add_to(std::vector<Row>& residual, std::vector<Row> update,
            const std::optional<GgufTensor>& post_norm, float epsilon) {
  for (size_t t = 0; t < residual.size(); ++t) {
    if (post_norm) norm(update[t], *post_norm, epsilon);
    for (size_t i = 0; i < residual[t].size(); ++i) residual[t][i] += update[t][i];
  }
}

std::vector<Row> normed(std::vector<Row> rows, const GgufTensor& weight, float epsilon) {
  for (Row& row : rows) norm(row, weight, epsilon);
  return rows;
}

}  // namespace

std::vector<float> reference_logits(const ModelConfig& config, const ModelTensors& tensors,
                                    std::span<const TokenId> tokens) {
  const Row table = tensor_floats(tensors.embedding);
  const Row factors = tensors.rope_factors ? tensor_floats(*tensors.rope_factors) : Row();
  std::vector<Row> residual;
  for (TokenId token : tokens) {
    const auto begin = table.begin() + static_cast<ptrdiff_t>(token) * config.embedding;
    residual.emplace_back(begin, begin + config.embedding);
    for (float& value : residual.back()) value *= config.embedding_scale;
  }
  const float epsilon = config.norm_epsilon;
  for (uint32_t i = 0; i < config.layers; ++i) {
    const LayerTensors& layer = tensors.layers[i];
    const RopeConfig& rope_config = config.groups[config.places[i].group].rope;
    const auto rope = make_rope(rope_config, config.architecture->rope_order, factors);
    add_to(residual,
           attention(config, i, layer, rope, normed(residual, layer.attention_norm, epsilon)),
           layer.attention_post_norm, epsilon);
    add_to(residual, mlp(config, layer, normed(residual, layer.mlp_norm, epsilon)),
           layer.mlp_post_norm, epsilon);
  }
  std::vector<float> logits;
  for (Row& row : multiply_all(tensors.output_or_embedding(), std::nullopt,
                               normed(std::move(residual), tensors.output_norm, epsilon))) {
    for (float& value : row) value = static_cast<float>(soft_cap(value, config.final_soft_cap));
    logits.insert(logits.end(), row.begin(), row.end());
  }
  return logits;
}

}  // namespace spillway::model
