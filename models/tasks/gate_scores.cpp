#include "models/tasks/gate_scores.h"

#include <algorithm>

#include "models/hspmn/token_gate.h"

// b sequences on this rank  S tokens
namespace shoal {

bool GateScores::apply_to(const torch::nn::Module& model) {
  return std::ranges::any_of(model.modules(), [](const auto& module) {
    return dynamic_cast<const TokenGateImpl*>(module.get()) != nullptr;
  });
}

std::vector<NamedSum> GateScores::sums(const std::vector<torch::Tensor>& is_open_bS,
                                       const torch::Tensor& length_b,
                                       const torch::Tensor& label_bS) {
  TORCH_CHECK(!is_open_bS.empty(), "a model without token gates has no scores of them");
  const torch::Tensor is_open_GbS = torch::stack(is_open_bS);
  torch::Tensor has_label = torch::zeros_like(is_open_bS[0]);
  if (label_bS.defined()) has_label = label_bS != kNoLabel;
  const int64_t tokens =
      length_b.defined() ? length_b.sum().item<int64_t>() : is_open_bS[0].numel();
  const torch::Tensor host =
      torch::stack({is_open_GbS.sum(), (is_open_GbS.any(0) & has_label).sum(), has_label.sum()})
          .to(torch::kCPU, torch::kFloat64);  // one wait for all
  const double* value = host.const_data_ptr<double>();
  std::vector<NamedSum> sums{
      {"gate_rate", value[0],
       static_cast<double>(tokens) * static_cast<double>(is_open_bS.size())}};
  if (label_bS.defined()) sums.push_back({"gate_recall", value[1], value[2]});
  return sums;
}

std::vector<Metric> GateScores::metrics(const std::vector<NamedSum>& totals, bool has_recall) {
  std::vector<Metric> metrics{
      {"gate_rate", mean_of(totals, "gate_rate"), Metric::Kind::kShare, "attending"}};
  if (has_recall) {
    metrics.push_back({"gate_recall", mean_of(totals, "gate_recall"), Metric::Kind::kShare,
                       "labelled tokens attending"});
  }
  return metrics;
}

}  // namespace shoal
