#pragma once

#include <torch/types.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "moe/top_k.h"
#include "runtime/random.h"

// T tokens  K choices per token  E experts
namespace shoal::bench {

/// A MoE layer as it is measured: experts width -> hidden -> width.
struct MoeShape {
  std::string id;
  int64_t experts, k, tokens, width, hidden;
  int64_t tokens_per_sample = 64;

  int64_t rows() const { return tokens * k; }
  /// Of experts with two layers: multiply-adds twice, forward and both gradients.
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
inline torch::Tensor normal(at::IntArrayRef sizes, uint64_t layer) {
  torch::Tensor tensor = torch::empty(sizes);
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
