#include "launch/train/computed_work.h"

namespace shoal {

void ComputedWork::add(const std::vector<MoeStats>& step) {
  ++num_new_;
  if (!work_.routed_training_flops.empty()) shoal::add(choices_, step);
}

double ComputedWork::take_share() {
  double dropped_flops = 0.0;
  if (!choices_.empty()) {
    for (const MoeReport& layer :
         reduce(torch::zeros({0}, torch::kFloat64), choices_, world_).layers) {
      const auto routed = work_.routed_training_flops.find(layer.layer);
      if (routed != work_.routed_training_flops.end())
        dropped_flops += routed->second * layer.dropped;
    }
  }
  const double share = 1.0 - dropped_flops / work_.training_flops;
  steps_ += static_cast<double>(num_new_) * share;
  num_new_ = 0;
  choices_.clear();
  return share;
}

}  // namespace shoal
