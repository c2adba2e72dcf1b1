#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/foreign_model.h"

namespace shoal::testing {

/// Sizes of an adaptive sparse-attention denoiser; here tiny ones.
struct DenoiserSizes {
  int64_t image_size = 16, patch = 4, width = 8, depth = 2, experts = 2;
};
inline constexpr DenoiserSizes kPublishedDenoiser{32, 4, 128, 2, 3};

/// A denoiser as its public program saves it, in float32.
inline Tensors public_denoiser(const DenoiserSizes& sizes = {}) {
  const int64_t width = sizes.width, patch = sizes.patch, side = sizes.image_size / patch;
  std::map<std::string, std::vector<int64_t>> shapes{
      {"patch_embed.weight", {width, 3, patch, patch}},
      {"patch_embed.bias", {width}},
      {"pos_embed", {1, side * side, width}},
      {"patch_unembed.weight", {width, 3, patch, patch}},
      {"patch_unembed.bias", {3}}};
  const auto add = [&](const std::string& name, const std::vector<int64_t>& weight) {
    shapes[name + ".weight"] = weight;
    shapes[name + ".bias"] = {weight[0]};
  };
  for (int64_t i = 0; i < sizes.depth; ++i) {
    const std::string block = fmt::format("blocks.{}.", i);
    add(block + "norm1", {width});
    add(block + "attn.router.routing_net.0", {width / 2, width});
    add(block + "attn.router.routing_net.2", {sizes.experts, width / 2});
    for (int64_t e = 0; e < sizes.experts; ++e) {
      for (const char* layer : {"W_q", "W_k", "W_v", "W_out"}) {
        add(fmt::format("{}attn.experts.{}.{}", block, e, layer), {width, width});
      }
    }
    add(block + "attn.merge_proj", {width, width});
    add(block + "norm2", {width});
    add(block + "ffn.0", {2 * width, width});
    add(block + "ffn.2", {width, 2 * width});
  }
  return some_tensors(shapes);
}

}  // namespace shoal::testing
