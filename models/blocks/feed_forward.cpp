#include "models/blocks/feed_forward.h"

#include <fmt/format.h>

// B samples  S tokens  C width
namespace shoal {
namespace {

constexpr int64_t kMoeEvery = 2;
constexpr int64_t kNexusEvery = 1;

struct BlockRange {
  int64_t from, to, every;
};

BlockRange range_of(const FeedForwardOptions& options, int64_t depth) {
  const SparseBlocks blocks = options.sparse_blocks.value_or(SparseBlocks{});
  return {blocks.from.value_or(depth / 2), blocks.to.value_or(depth - 1),
          blocks.every.value_or(options.moe ? kMoeEvery : kNexusEvery)};
}

}  // namespace

void FeedForwardOptions::check(int64_t depth, Problems& problems) const {
  if (moe && nexus) {
    problems.add("nexus", "a block's MLP place takes moe or nexus; leave one of them out");
    return;
  }
  if (!moe && !nexus) {
    if (sparse_blocks) {
      problems.add("sparse_blocks", "needs moe or nexus, the layer that these blocks have");
    }
    return;
  }
  const BlockRange range = range_of(*this, depth);
  if (depth == 0) {
    problems.add(moe ? "moe" : "nexus", "the model has no blocks that could have it");
  } else if (range.to >= depth) {
    problems.add("sparse_blocks.to",
                 fmt::format("the model's blocks are 0 to {}, got {}", depth - 1, range.to));
  } else if (range.from > range.to && sparse_blocks->from) {
    problems.add("sparse_blocks.from",
                 fmt::format("must be at most sparse_blocks.to: {} is above {}{}", range.from,
                             range.to, sparse_blocks->to ? "" : " (auto)"));
  } else if (range.from > range.to) {
    problems.add("sparse_blocks.to",
                 fmt::format("must be at least sparse_blocks.from: {} is below {} (auto)", range.to,
                             range.from));
  }
}

bool FeedForwardOptions::is_sparse(int64_t block, int64_t depth) const {
  if (!moe && !nexus) return false;
  const BlockRange range = range_of(*this, depth);
  return block >= range.from && block <= range.to && (range.to - block) % range.every == 0;
}

FeedForward::FeedForward(torch::nn::Module& owner, const FeedForwardOptions& options,
                         const Place& place, const BuildContext& build) {
  if (!options.is_sparse(place.block, place.depth)) {
    add_mlp(owner, place, build.tensor_options);
  } else if (options.moe) {
    moe_ = owner.register_module(
        "moe", std::make_shared<MoeLayer>(*options.moe, place.width, place.path() + ".moe", build,
                                          place.inits));
  } else {
    nexus_ = owner.register_module("nexus",
                                   std::make_shared<NexusLayer>(options.nexus.value(), place.width,
                                                                place.path() + ".nexus", build));
  }
}

void FeedForward::add_mlp(torch::nn::Module& owner, const Place& place,
                          const torch::TensorOptions& options) {
  const MlpShape shape{place.width, place.hidden, place.has_bias};
  const MlpInits inits = place.inits.value_or(xavier_inits(place.width, place.hidden));
  if (place.kind == MlpKind::kSwiglu) {
    gated_ = owner.register_module("mlp", GatedMlp(shape, inits, options));
  } else {
    mlp_ = owner.register_module("mlp", Mlp(shape, place.gelu, inits, options));
  }
}

BlockOutput FeedForward::forward(const torch::Tensor& x_BSC, const StepContext& step) const {
  if (mlp_) return {mlp_->forward(x_BSC), {}, {}};
  if (gated_) return {gated_->forward(x_BSC), {}, {}};
  const MoeOutput output = moe_ ? moe_->forward(x_BSC, step) : nexus_->forward(x_BSC, step);
  return {output.y_BRD, output.auxiliary_loss, {output.stats}};
}

}  // namespace shoal
