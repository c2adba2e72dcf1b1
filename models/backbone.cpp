#include "models/backbone.h"

#include <utility>

#include "models/blocks/auxiliary_loss.h"

namespace shoal {
namespace {

std::vector<std::shared_ptr<MoeStage>> stages_of(const torch::nn::Module& root) {
  std::vector<std::shared_ptr<MoeStage>> stages;
  for (const auto& module : root.modules(/*include_self=*/false)) {
    if (auto stage = std::dynamic_pointer_cast<MoeStage>(module)) stages.push_back(stage);
  }
  return stages;
}

}  // namespace

torch::Tensor ModelOutput::take(BlockOutput block) {
  auxiliary_loss = add_loss(auxiliary_loss, block.auxiliary_loss);
  for (MoeStats& stats : block.moe) moe.push_back(std::move(stats));
  return block.y;
}

std::vector<MoeStageInfo> Backbone::moe_stages() const {
  std::vector<MoeStageInfo> infos;
  for (const auto& stage : stages_of(*this)) infos.push_back(stage->info());
  return infos;
}

void Backbone::after_step() {
  for (const auto& stage : stages_of(*this)) stage->after_step();
}

torch::Tensor at_least_float32(const torch::Tensor& x) {
  return x.scalar_type() == torch::kBFloat16 ? x.to(torch::kFloat32) : x;
}

torch::Tensor mean_over(const torch::Tensor& x, at::IntArrayRef dims) {
  return x.mean(dims, /*keepdim=*/false,
                x.scalar_type() == torch::kBFloat16 ? torch::kFloat32 : x.scalar_type());
}

}  // namespace shoal
