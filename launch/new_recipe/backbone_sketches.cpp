#include "launch/new_recipe/backbone_sketches.h"

#include <array>

namespace shoal {
namespace {

constexpr std::array kBackbones{
    BackboneSketch{"vit", true, Experts::kMay, ExpertsKey::kMoe, "", "classify",
                   "  patch: {patch}                       # side of a patch, pixels\n"
                   "  width: 128\n"
                   "  depth: 6\n"
                   "  heads: 4\n"
                   "  hidden: 512                    # of dense MLPs, 4 times the width\n"
                   "  pool: mean                     # or cls: a class token\n"},
    BackboneSketch{"convnext", true, Experts::kMay, ExpertsKey::kMoe, "", "classify",
                   "  stem_patch: 2\n"
                   "  depths: [2, 2, 4]              # blocks of each stage\n"
                   "  widths: [32, 64, 128]          # channels of each stage\n"},
    BackboneSketch{"mixer", true, Experts::kNone, ExpertsKey::kMoe,
                   "sparse_mlp is a Mixer with experts", "classify",
                   "  patch: {patch}                       # side of a patch, pixels\n"
                   "  width: 128\n"
                   "  depth: 6\n"
                   "  token_hidden: 64               # of MLPs over tokens, half the width\n"
                   "  channel_hidden: 512            # of MLPs over channels, 4 times the width\n"},
    BackboneSketch{"sparse_mlp", true, Experts::kMust, ExpertsKey::kSparse,
                   "mixer is the dense model", "classify",
                   "  patch: {patch}                       # side of a patch, pixels\n"
                   "  width: 64\n"
                   "  dense_blocks: 2\n"
                   "  token_hidden: 64\n"
                   "  channel_hidden: 256\n"
                   "  sparse_blocks: 1\n"},
    BackboneSketch{"adaptive_attention", true, Experts::kMust, ExpertsKey::kAttention,
                   "vit is a dense model", "denoise",
                   "  patch: 4                       # side of a patch, pixels\n"
                   "  width: 64\n"
                   "  depth: 2\n"
                   "  heads: 4\n"},
    BackboneSketch{"gpt2", false, Experts::kMay, ExpertsKey::kMoe, "", "",
                   "  width: 128\n"
                   "  depth: 4\n"
                   "  heads: 4\n"},
    BackboneSketch{"hspmn", false, Experts::kMay, ExpertsKey::kMoe, "", "",
                   "  width: 128\n"
                   "  depth: 4\n"
                   "  heads: 4\n"
                   "  kv_heads: 1\n"
                   "  hidden: 256\n"
                   "  init_std: 0.06\n"
                   "  gate: {rate: 0.25, anneal_steps: 300}   # share of tokens that attend\n"}};

}  // namespace

std::span<const BackboneSketch> backbone_sketches() { return kBackbones; }

}  // namespace shoal
