#include "launch/evaluate/router_agreement.h"

#include <limits>

namespace shoal {
namespace {

/// The smallest integer type for unit ids and -1.
torch::Dtype dtype_for(int64_t num_units) {
  if (num_units <= std::numeric_limits<int8_t>::max()) return torch::kInt8;
  if (num_units <= std::numeric_limits<int16_t>::max()) return torch::kInt16;
  return torch::kInt32;
}

}  // namespace

void RouterAgreement::begin_evaluation() {
  next_ = 0;
  counts_ = torch::Tensor();
}

void RouterAgreement::add(const std::vector<MoeStats>& layers) {
  for (const MoeStats& layer : layers) {
    if (!layer.first_unit_T.defined()) continue;
    const torch::Tensor unit_T = layer.first_unit_T.to(dtype_for(layer.placement.num_units()));
    if (next_ == unit_T_.size()) {
      unit_T_.push_back(unit_T);
    } else {
      TORCH_CHECK(unit_T_[next_].sizes() == unit_T.sizes(), layer.layer, ": ", unit_T.size(0),
                  " tokens, the evaluation before had ", unit_T_[next_].size(0));
      const torch::Tensor has_T = unit_T >= 0, had_T = unit_T_[next_] >= 0;
      const torch::Tensor counts =
          torch::stack({(has_T & (unit_T == unit_T_[next_])).sum(), (has_T | had_T).sum()});
      counts_ = counts_.defined() ? counts_ + counts : counts;
      unit_T_[next_] = unit_T;
    }
    ++next_;
  }
}

NamedSum RouterAgreement::counts() const {
  if (!counts_.defined()) return {"agreement"};
  const torch::Tensor host = counts_.to(torch::kCPU);
  return {"agreement", host[0].item<double>(), host[1].item<double>()};
}

}  // namespace shoal
