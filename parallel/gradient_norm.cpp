#include "parallel/gradient_norm.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace shoal {
namespace {

// Elements summed one after another; borders do not move with the number of threads.
constexpr int64_t kBlock = 16384;
constexpr int64_t kLanes = 8;

struct BlockSurvey {
  double square_sum = 0.0;
  double max_abs = 0.0;
};

template <typename T>
BlockSurvey survey_block(const T* values, int64_t count) {
  // Several running sums, as one would wait for each addition; the compiler makes them a vector.
  double squares[kLanes] = {};
  double most[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      squares[lane] += value * value;
      most[lane] = std::max(most[lane], std::abs(value));
    }
  }
  for (int64_t lane = 0; i < count; ++i, ++lane) {
    const auto value = static_cast<double>(values[i]);
    squares[lane] += value * value;
    most[lane] = std::max(most[lane], std::abs(value));
  }
  BlockSurvey survey;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    survey.square_sum += squares[lane];
    survey.max_abs = std::max(survey.max_abs, most[lane]);
  }
  return survey;
}

template <typename T>
BlockSurvey survey_values(const T* values, int64_t count) {
  const int64_t num_blocks = (count + kBlock - 1) / kBlock;
  std::vector<BlockSurvey> blocks(static_cast<size_t>(num_blocks));
  at::parallel_for(0, num_blocks, 4, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kBlock;
      blocks[static_cast<size_t>(block)] =
          survey_block(values + first, std::min(kBlock, count - first));
    }
  });
  BlockSurvey survey;
  for (const BlockSurvey& block : blocks) {
    survey.square_sum += block.square_sum;
    survey.max_abs = std::max(survey.max_abs, block.max_abs);
  }
  return survey;
}

BlockSurvey survey_tensor(const torch::Tensor& gradient) {
  if (gradient.device().is_cpu()) {
    const torch::Tensor dense = gradient.contiguous();
    if (dense.scalar_type() == torch::kFloat) {
      return survey_values(dense.const_data_ptr<float>(), dense.numel());
    }
    if (dense.scalar_type() == torch::kDouble) {
      return survey_values(dense.const_data_ptr<double>(), dense.numel());
    }
  }
  if (gradient.numel() == 0) return {};
  const torch::Tensor wide = gradient.to(torch::kDouble);
  return {wide.square().sum().item<double>(), wide.abs().max().item<double>()};
}

bool is_finite(const torch::Tensor& tensor) { return at::isfinite(tensor).all().item<bool>(); }

/// The name to blame in a tensor that holds a non-finite number.
std::string name_nonfinite(const Parameter& parameter, const torch::Tensor& gradient) {
  if (!parameter.is_stacked()) return parameter.name;
  for (size_t row = 0; row < parameter.unit_ids.size(); ++row) {
    if (is_finite(gradient[static_cast<int64_t>(row)])) continue;
    return name_of_unit(parameter.name, parameter.unit_ids[row]);
  }
  return parameter.name;
}

double agreed(Communicator& world, double value, ReduceOp op) {
  if (world.size() == 1) return value;
  const torch::Tensor number = torch::full({1}, value, torch::kDouble);
  all_reduce(world, number, op);
  return number.item<double>();
}

}  // namespace

GradientSurvey survey_gradients(const std::vector<ParameterGroup>& groups) {
  torch::NoGradGuard no_grad;
  GradientSurvey total;
  int64_t index = 0;
  for (const ParameterGroup& group : groups) {
    const int64_t rank = group.replicas->rank();
    for (size_t i = 0; i < group.parameters.size(); ++i, ++index) {
      const Parameter& parameter = group.parameters[i];
      const torch::Tensor& gradient = parameter.tensor.grad();
      const bool is_mine = static_cast<int64_t>(i) % group.replicas->size() == rank;
      if (!is_mine || !gradient.defined()) continue;
      const BlockSurvey own = survey_tensor(gradient);
      total.square_sum += own.square_sum;
      total.max_abs = std::max(total.max_abs, own.max_abs);
      // max() passes over NaN; the sum of squares does not, but may overflow in float64.
      if (std::isfinite(own.square_sum) || !total.nonfinite.empty() || is_finite(gradient)) {
        continue;
      }
      total.nonfinite = name_nonfinite(parameter, gradient);
      total.nonfinite_index = index;
    }
  }
  if (!total.nonfinite.empty()) total.max_abs = std::numeric_limits<double>::infinity();
  return total;
}

double global_norm(const GradientSurvey& survey, Communicator& world) {
  return std::sqrt(agreed(world, survey.square_sum, ReduceOp::kSum));
}

double global_max_norm(const GradientSurvey& survey, Communicator& world) {
  return agreed(world, survey.max_abs, ReduceOp::kMax);
}

std::string first_nonfinite(const GradientSurvey& survey, Communicator& world) {
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
