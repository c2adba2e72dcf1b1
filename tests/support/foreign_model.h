#pragma once

#include <torch/types.h>

#include <map>
#include <string>
#include <vector>

#include "runtime/files/safetensors.h"
#include "tests/support/gradient_check.h"
#include "tests/support/scratch_folder.h"

namespace shoal::testing {

using Tensors = std::map<std::string, torch::Tensor>;

inline Dtype safetensors_dtype(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat64:
      return Dtype::kF64;
    case torch::kBFloat16:
      return Dtype::kBF16;
    case torch::kFloat16:
      return Dtype::kF16;
    case torch::kUInt8:
      return Dtype::kU8;
    default:
      return Dtype::kF32;
  }
}

inline void save_tensors(const std::string& path, const Tensors& tensors) {
  std::vector<SafetensorsEntry> entries;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const torch::Tensor value = tensor.contiguous();
    entries.push_back({name, safetensors_dtype(value.scalar_type()), value.sizes().vec(), 0, 0});
    data.append(static_cast<const char*>(value.const_data_ptr()), value.nbytes());
  }
  write_file(path, emit_safetensors_header(entries, {{"format", "pt"}}) + data);
}

/// Tensors of these shapes in float32, each of other numbers.
inline Tensors some_tensors(const std::map<std::string, std::vector<int64_t>>& shapes) {
  Tensors tensors;
  int64_t seed = 1;
  for (const auto& [name, shape] : shapes) {
    tensors[name] = some_numbers(shape, seed++).to(torch::kFloat32);
  }
  return tensors;
}

/// A tiny Vision Transformer as timm saves it: 16 x 16 pixels, patches of 8, width 6, one block,
/// five classes.
inline Tensors timm_vit() {
  return some_tensors({{"cls_token", {1, 1, 6}},
                       {"pos_embed", {1, 5, 6}},
                       {"patch_embed.proj.weight", {6, 3, 8, 8}},
                       {"patch_embed.proj.bias", {6}},
                       {"blocks.0.norm1.weight", {6}},
                       {"blocks.0.norm1.bias", {6}},
                       {"blocks.0.attn.qkv.weight", {18, 6}},
                       {"blocks.0.attn.qkv.bias", {18}},
                       {"blocks.0.attn.proj.weight", {6, 6}},
                       {"blocks.0.attn.proj.bias", {6}},
                       {"blocks.0.norm2.weight", {6}},
                       {"blocks.0.norm2.bias", {6}},
                       {"blocks.0.mlp.fc1.weight", {10, 6}},
                       {"blocks.0.mlp.fc1.bias", {10}},
                       {"blocks.0.mlp.fc2.weight", {6, 10}},
                       {"blocks.0.mlp.fc2.bias", {6}},
                       {"norm.weight", {6}},
                       {"norm.bias", {6}},
                       {"head.weight", {5, 6}},
                       {"head.bias", {5}}});
}

/// A tiny Mixer as timm saves it: 16 x 16 pixels, patches of 8, width 6, one block, five classes.
inline Tensors timm_mixer() {
  return some_tensors({{"stem.proj.weight", {6, 3, 8, 8}},
                       {"stem.proj.bias", {6}},
                       {"blocks.0.norm1.weight", {6}},
                       {"blocks.0.norm1.bias", {6}},
                       {"blocks.0.mlp_tokens.fc1.weight", {3, 4}},
                       {"blocks.0.mlp_tokens.fc1.bias", {3}},
                       {"blocks.0.mlp_tokens.fc2.weight", {4, 3}},
                       {"blocks.0.mlp_tokens.fc2.bias", {4}},
                       {"blocks.0.norm2.weight", {6}},
                       {"blocks.0.norm2.bias", {6}},
                       {"blocks.0.mlp_channels.fc1.weight", {10, 6}},
                       {"blocks.0.mlp_channels.fc1.bias", {10}},
                       {"blocks.0.mlp_channels.fc2.weight", {6, 10}},
                       {"blocks.0.mlp_channels.fc2.bias", {6}},
                       {"norm.weight", {6}},
                       {"norm.bias", {6}},
                       {"head.weight", {5, 6}},
                       {"head.bias", {5}}});
}

/// A tiny GPT-2 as Hugging Face saves it: bytes, width 6, eight positions, one block.
inline Tensors hf_gpt2() {
  Tensors tensors;
  for (auto& [name, tensor] : some_tensors({{"wte.weight", {256, 6}},
                                            {"wpe.weight", {8, 6}},
                                            {"h.0.ln_1.weight", {6}},
                                            {"h.0.ln_1.bias", {6}},
                                            {"h.0.attn.c_attn.weight", {6, 18}},
                                            {"h.0.attn.c_attn.bias", {18}},
                                            {"h.0.attn.c_proj.weight", {6, 6}},
                                            {"h.0.attn.c_proj.bias", {6}},
                                            {"h.0.ln_2.weight", {6}},
                                            {"h.0.ln_2.bias", {6}},
                                            {"h.0.mlp.c_fc.weight", {6, 10}},
                                            {"h.0.mlp.c_fc.bias", {10}},
                                            {"h.0.mlp.c_proj.weight", {10, 6}},
                                            {"h.0.mlp.c_proj.bias", {6}},
                                            {"ln_f.weight", {6}},
                                            {"ln_f.bias", {6}}})) {
    tensors["transformer." + name] = tensor;
  }
  return tensors;
}

}  // namespace shoal::testing
