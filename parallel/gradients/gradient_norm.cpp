#include "parallel/gradients/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/optim/gradients.h"

namespace shoal {

GradientShare share_of(const std::vector<ParameterGroup>& groups) {
  GradientShare share;
  for (const ParameterGroup& group : groups) {
    const auto step = static_cast<size_t>(group.replicas->size());
    for (auto i = static_cast<size_t>(group.replicas->rank()); i < group.parameters.size();
         i += step) {
      share.parameters.push_back(group.parameters[i]);
      share.places.push_back(group.places[i]);
    }
  }
  return share;
}

GradientStats gradient_stats(const GradientShare& share) {
  const torch::Tensor sums = square_sums(share.parameters).to(torch::kCPU);
  const double* sum = sums.const_data_ptr<double>();
  GradientStats stats;
  stats.square_sums.assign(sum, sum + sums.numel());
  for (size_t i = 0; i < share.parameters.size(); ++i) {
    stats.square_sum += sum[i];
    const bool is_first = stats.nonfinite.empty() || share.places[i] < stats.nonfinite_place;
    if (std::isfinite(sum[i]) || !is_first) continue;
    // A sum of float64 squares may overflow though every gradient is finite.
    if (const auto name = find_nonfinite(share.parameters[i])) {
      stats.nonfinite = *name;
      stats.nonfinite_place = share.places[i];
    }
  }
  return stats;
}

double global_max_norm(const GradientShare& share, Communicator& world) {
  std::vector<torch::Tensor> largest;
  for (const Parameter& parameter : share.parameters) {
    const torch::Tensor& gradient = parameter.tensor.grad();
    if (gradient.numel() == 0) continue;
    largest.push_back(gradient.abs().max().to(torch::kFloat64));
  }
  torch::Tensor most = torch::zeros({1}, torch::kFloat64);
  if (!largest.empty()) most = torch::stack(largest).max().reshape({1}).to(torch::kCPU);
  if (std::isnan(most.item<double>())) most.fill_(std::numeric_limits<double>::infinity());
  all_reduce(world, most, ReduceOp::kMax);
  return most.item<double>();
}

std::string first_nonfinite(const GradientStats& stats, Communicator& world) {
  const bool is_bad = !stats.nonfinite.empty();
  const std::vector<std::string> all = gather_text(
      world, is_bad ? std::to_string(stats.nonfinite_place) + " " + stats.nonfinite : "");
  std::string first;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const std::string& text : all) {
    if (text.empty()) continue;
    const int64_t place = std::stoll(text);
    if (place >= least) continue;
    least = place;
    first = text.substr(text.find(' ') + 1);
  }
  return first;
}

double clip_factor(double norm, double clip_norm) {
  if (clip_norm == 0.0) return 1.0;
  return 1.0 / std::max(1.0, norm / clip_norm);
}

}  // namespace shoal
