#pragma once

#include <torch/types.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "moe/kernels/row_top_k.h"
#include "runtime/random/random.h"

// T tokens  K choices per token  E experts
namespace shoal::bench {

/// A MoE layer as it is measured: experts width -> hidden -> width.
struct MoeShape {
  std::string id;
  int64_t experts, k, tokens, width, hidden;
  int64_t tokens_per_sample = 64;
  bool gated = false;  ///< experts of three matrices

  int64_t rows() const { return tokens * k; }
  /// Operations of experts with two layers: multiply-adds twice, forward and both gradients.
  double flop() const {
    return 3.0 * 2.0 * 2.0 * static_cast<double>(rows()) * static_cast<double>(width * hidden);
  }
};

inline const std::vector<MoeShape>& moe_shapes() {
  static const std::vector<MoeShape> shapes{{"e4_top2", 4, 2, 2048, 384, 1536},
                                            {"e8_top1", 8, 1, 4096, 384, 1536},
                                            {"e16_top1", 16, 1, 8192, 384, 1536},
                                            {"e64_top2", 64, 2, 4096, 384, 768}};
  return shapes;
}

/// What a GPU is measured with: Sparse-MLP's base model at 64 images, its channel layer and two
/// token layers, and layers as Mixtral 8x7B, Qwen3-MoE, a fine-grained model and one rank of
/// DeepSeek-V3 have them.
inline const std::vector<MoeShape>& gpu_shapes() {
  static const std::vector<MoeShape> shapes{
      {"S1", 4, 2, 25088, 384, 1536, 392},        {"S2", 8, 1, 24576, 392, 768, 384},
      {"S3", 16, 1, 24576, 392, 768, 384},        {"M1", 8, 2, 4096, 4096, 14336, 64, true},
      {"Q1", 128, 8, 16384, 2048, 768, 64, true}, {"N1", 128, 8, 24576, 1536, 256, 64, true},
      {"D1", 32, 8, 4096, 7168, 2048, 64, true}};
  return shapes;
}

/// The shape of this id; all for "". Throws std::invalid_argument.
inline std::vector<MoeShape> chosen_shapes(const std::string& id,
                                           const std::vector<MoeShape>& shapes = moe_shapes()) {
  std::vector<MoeShape> chosen;
  for (const MoeShape& shape : shapes) {
    if (id.empty() || shape.id == id) chosen.push_back(shape);
  }
  if (chosen.empty()) throw std::invalid_argument("no shape is called " + id);
  return chosen;
}

/// Standard normal numbers.
inline torch::Tensor normal(at::IntArrayRef sizes, uint64_t layer,
                            const torch::TensorOptions& options = {}) {
  torch::Tensor tensor = torch::empty(sizes, options);
  fill_normal(tensor, Stream{1, Purpose::kTest, layer, 0});
  return tensor;
}

/// Rows of each expert when every token picks k experts at random.
inline std::vector<int64_t> random_rows(const MoeShape& shape) {
  const torch::Tensor unit = top_k(normal({shape.tokens, shape.experts}, 99), shape.k).flatten();
  const torch::Tensor rows = torch::bincount(unit, {}, shape.experts);
  return {rows.data_ptr<int64_t>(), rows.data_ptr<int64_t>() + shape.experts};
}

}  // namespace shoal::bench
