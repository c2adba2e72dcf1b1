#include "parallel/gradients/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/optim/gradients.h"

namespace shoal {
namespace {

/// A parameter with a gradient that this rank looks at, and its place among all.
struct Share {
  std::vector<Parameter> parameters;
  std::vector<int64_t> indices;
};

Share share_of(const std::vector<ParameterGroup>& groups) {
  Share share;
  int64_t index = 0;
  for (const ParameterGroup& group : groups) {
    for (size_t i = 0; i < group.parameters.size(); ++i, ++index) {
      const bool is_mine =
          static_cast<int64_t>(i) % group.replicas->size() == group.replicas->rank();
      if (!is_mine || !group.parameters[i].tensor.grad().defined()) continue;
      share.parameters.push_back(group.parameters[i]);
      share.indices.push_back(index);
    }
  }
  return share;
}

double agreed(Communicator& world, double value, ReduceOp op) {
  if (world.size() == 1) return value;
  const torch::Tensor number = torch::full({1}, value, torch::kDouble);
  all_reduce(world, number, op);
  return number.item<double>();
}

}  // namespace

GradientStats gradient_stats(const std::vector<ParameterGroup>& groups) {
  const Share share = share_of(groups);
  return gradient_stats(share.parameters, share.indices);
}

GradientStats gradient_stats(const std::vector<Parameter>& share,
                             const std::vector<int64_t>& indices) {
  const torch::Tensor sums = square_sums(share).to(torch::kCPU);
  const double* sum = sums.const_data_ptr<double>();
  GradientStats survey;
  for (size_t i = 0; i < share.size(); ++i) {
    survey.square_sum += sum[i];
    const bool is_first = survey.nonfinite.empty() || indices[i] < survey.nonfinite_index;
    if (std::isfinite(sum[i]) || !is_first) continue;
    // A sum of float64 squares may overflow though every gradient is finite.
    if (const auto name = find_nonfinite(share[i])) {
      survey.nonfinite = *name;
      survey.nonfinite_index = indices[i];
    }
  }
  return survey;
}

double global_norm(const GradientStats& survey, Communicator& world) {
  return std::sqrt(agreed(world, survey.square_sum, ReduceOp::kSum));
}

double global_max_norm(const std::vector<ParameterGroup>& groups, Communicator& world) {
  return global_max_norm(share_of(groups).parameters, world);
}

double global_max_norm(const std::vector<Parameter>& share, Communicator& world) {
  std::vector<torch::Tensor> largest;
  for (const Parameter& parameter : share) {
    if (parameter.tensor.numel() == 0) continue;
    largest.push_back(parameter.tensor.grad().abs().max().to(torch::kFloat64));
  }
  double most = 0.0;
  if (!largest.empty()) most = torch::stack(largest).max().item<double>();  // a NaN is the largest
  if (std::isnan(most)) most = std::numeric_limits<double>::infinity();
  return agreed(world, most, ReduceOp::kMax);
}

std::string first_nonfinite(const GradientStats& survey, Communicator& world) {
  const bool is_bad = !survey.nonfinite.empty();
  const std::vector<std::string> all = gather_text(
      world, is_bad ? std::to_string(survey.nonfinite_index) + " " + survey.nonfinite : "");
  std::string first;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const std::string& text : all) {
    if (text.empty()) continue;
    const int64_t index = std::stoll(text);
    if (index >= least) continue;
    least = index;
    first = text.substr(text.find(' ') + 1);
  }
  return first;
}

double clip_factor(double norm, double clip_norm) {
  if (clip_norm == 0.0) return 1.0;
  return 1.0 / std::max(1.0, norm / clip_norm);
}

}  // namespace shoal
