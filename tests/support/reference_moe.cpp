#include "tests/support/reference_moe.h"

#include <algorithm>
#include <cmath>

namespace shoal::testing {
namespace {

using Choices = std::vector<std::vector<int64_t>>;
using Kept = std::vector<std::vector<bool>>;

struct TokenGroup {
  int64_t begin, end;  // tokens
};

struct Place {
  int64_t token, rank;  // rank 0 is the token's first choice
};

std::vector<int64_t> best_units(const torch::Tensor& score_U, int64_t k) {
  std::vector<int64_t> units;
  for (int64_t u = 0; u < score_U.size(0); ++u) units.push_back(u);
  std::stable_sort(units.begin(), units.end(), [&](int64_t a, int64_t b) {
    return score_U[a].item<double>() > score_U[b].item<double>();
  });
  units.resize(static_cast<size_t>(k));
  return units;
}

int64_t round_up(int64_t numerator, int64_t denominator) {
  return (numerator + denominator - 1) / denominator;
}

double best_score(const torch::Tensor& gate_TU, int64_t token) {
  return gate_TU[token].max().item<double>();
}

/// The least important tokens of [begin, end), later tokens first among equals.
std::vector<int64_t> least_important(const torch::Tensor& gate_TU, int64_t begin, int64_t end,
                                     int64_t count) {
  std::vector<int64_t> tokens;
  for (int64_t t = end - 1; t >= begin; --t) tokens.push_back(t);
  std::stable_sort(tokens.begin(), tokens.end(), [&](int64_t a, int64_t b) {
    return best_score(gate_TU, a) < best_score(gate_TU, b);
  });
  tokens.resize(static_cast<size_t>(count));
  return tokens;
}

/// The choices of a group in the order in which they are served.
std::vector<Place> queue_of(const ReferenceMoe& moe, const torch::Tensor& gate_TU,
                            const Choices& units, const TokenGroup& group) {
  const auto [begin, end] = group;
  std::vector<int64_t> tokens;
  for (int64_t t = begin; t < end; ++t) tokens.push_back(t);
  if (moe.order == ReferenceMoe::Order::kBatchPriority) {
    std::stable_sort(tokens.begin(), tokens.end(), [&](int64_t a, int64_t b) {
      return best_score(gate_TU, a) > best_score(gate_TU, b);
    });
  }
  const bool by_slot = moe.order == ReferenceMoe::Order::kSlotMajor ||
                       moe.order == ReferenceMoe::Order::kBatchPriority;
  std::vector<Place> queue;
  for (int64_t slot = 0; slot < (by_slot ? moe.k : 1); ++slot) {
    for (const int64_t t : tokens) {
      const auto num_choices = static_cast<int64_t>(units[t].size());
      if (!by_slot) {
        for (int64_t rank = 0; rank < num_choices; ++rank) queue.push_back({t, rank});
      } else if (slot < num_choices) {
        queue.push_back({t, slot});
      }
    }
  }
  if (moe.order == ReferenceMoe::Order::kProbability) {
    const auto score = [&](const Place& p) {
      return gate_TU[p.token][units[p.token][p.rank]].item<double>();
    };
    std::stable_sort(queue.begin(), queue.end(),
                     [&](const Place& a, const Place& b) { return score(a) > score(b); });
  }
  return queue;
}

void serve_group(const ReferenceMoe& moe, const torch::Tensor& gate_TU, const Choices& units,
                 const TokenGroup& group, Kept& kept) {
  const auto [begin, end] = group;
  const int64_t num_units = gate_TU.size(1);
  const int64_t num_dropped = (end - begin) * moe.drop_percent / 100;
  std::vector<bool> masked(static_cast<size_t>(end), false);
  for (const int64_t t : least_important(gate_TU, begin, end, num_dropped)) masked[t] = true;
  int64_t capacity = (end - begin) * moe.k;
  if (moe.capacity_percent > 0) {
    const int64_t choices = (end - begin - num_dropped) * moe.k;
    capacity = round_up(choices * moe.capacity_percent, 100 * num_units);
    capacity = round_up(capacity, moe.capacity_align) * moe.capacity_align;
    capacity = std::max(capacity, moe.capacity_min);
  }
  std::vector<int64_t> filled(static_cast<size_t>(num_units), 0);
  for (const Place& place : queue_of(moe, gate_TU, units, group)) {
    const int64_t unit = units[place.token][place.rank];
    if (masked[place.token] || filled[unit] >= capacity) continue;
    ++filled[unit];
    kept[place.token][place.rank] = true;
  }
}

torch::Tensor scores_of(const ReferenceMoe& moe, const torch::Tensor& logits_TU) {
  if (moe.score == ReferenceMoe::Score::kSigmoid) return 1 / (1 + (-logits_TU).exp());
  if (moe.score == ReferenceMoe::Score::kSqrtSoftplus) return (1 + logits_TU.exp()).log().sqrt();
  return logits_TU.softmax(1);
}

torch::Tensor weights_of(const ReferenceMoe& moe, const torch::Tensor& gate_U,
                         const torch::Tensor& noisy_U, const std::vector<int64_t>& units,
                         const std::vector<bool>& kept) {
  const torch::Tensor index = torch::tensor(units);
  torch::Tensor weight_K = gate_U.index_select(0, index);
  if (moe.normalise == ReferenceMoe::Normalise::kTopkSoftmax) {
    weight_K = noisy_U.index_select(0, index).softmax(0);
  } else if (moe.normalise == ReferenceMoe::Normalise::kSum) {
    weight_K = weight_K / weight_K.sum();
  }
  if (moe.has_even_weights) weight_K = torch::full_like(weight_K, 1.0 / static_cast<double>(moe.k));
  torch::Tensor mask_K = torch::zeros_like(weight_K);
  for (size_t rank = 0; rank < units.size(); ++rank) {
    mask_K[static_cast<int64_t>(rank)] = kept[rank] ? 1.0 : 0.0;
  }
  weight_K = weight_K * mask_K;
  if (moe.renorm_after_drop && mask_K.sum().item<double>() > 0)
    weight_K = weight_K / weight_K.sum();
  return weight_K * moe.scale;
}

double squared_variation(const std::vector<double>& values) {
  double mean = 0, square = 0;
  for (const double v : values) mean += v / static_cast<double>(values.size());
  for (const double v : values) square += v * v / static_cast<double>(values.size());
  return square / (mean * mean) - 1.0;
}

}  // namespace

ReferenceMoe::Result ReferenceMoe::run(const torch::Tensor& x_TD, const torch::Tensor& noise_TU,
                                       int64_t tokens_per_group) const {
  const int64_t num_tokens = x_TD.size(0);
  Result result;
  result.logits_TU = x_TD.matmul(router_DU);
  result.noisy_TU = result.logits_TU + noise_TU;
  const torch::Tensor gate_TU = scores_of(*this, result.noisy_TU);
  result.units = choices;
  for (int64_t t = 0; t < num_tokens; ++t) {
    if (choices.empty()) result.units.push_back(best_units(result.noisy_TU[t], k));
    result.kept.emplace_back(result.units[t].size(), false);
  }
  for (int64_t begin = 0; begin < num_tokens; begin += tokens_per_group) {
    serve_group(*this, gate_TU.detach(), result.units,
                {begin, std::min(num_tokens, begin + tokens_per_group)}, result.kept);
  }
  std::vector<torch::Tensor> rows;
  for (int64_t t = 0; t < num_tokens; ++t) {
    const torch::Tensor weight_K =
        weights_of(*this, gate_TU[t], result.noisy_TU[t], result.units[t], result.kept[t]);
    torch::Tensor y_D = torch::zeros({fc2_weight.size(2)}, x_TD.options());
    for (size_t rank = 0; rank < result.units[t].size(); ++rank) {
      if (!result.kept[t][rank]) continue;
      const int64_t e = result.units[t][rank];
      const torch::Tensor hidden = torch::gelu(x_TD[t].matmul(fc1_weight[e]) + fc1_bias[e]);
      y_D =
          y_D + weight_K[static_cast<int64_t>(rank)] * (hidden.matmul(fc2_weight[e]) + fc2_bias[e]);
    }
    rows.push_back(y_D);
  }
  result.y_TD = num_tokens == 0 ? x_TD.new_zeros({0, fc2_weight.size(2)}) : torch::stack(rows);
  return result;
}

double reference_importance_loss(const torch::Tensor& logits_TU) {
  const torch::Tensor prob_TU = logits_TU.softmax(1);
  std::vector<double> importance(static_cast<size_t>(logits_TU.size(1)), 0.0);
  for (int64_t t = 0; t < logits_TU.size(0); ++t) {
    for (int64_t u = 0; u < logits_TU.size(1); ++u) {
      importance[u] += prob_TU[t][u].item<double>();
    }
  }
  return squared_variation(importance);
}

double reference_load_loss(const torch::Tensor& logits_TU, const torch::Tensor& noisy_TU, int64_t k,
                           double noise_std) {
  return reference_load_loss(logits_TU, noisy_TU, k, torch::full_like(logits_TU, noise_std));
}

double reference_load_loss(const torch::Tensor& logits_TU, const torch::Tensor& noisy_TU, int64_t k,
                           const torch::Tensor& noise_std_TU) {
  std::vector<double> load(static_cast<size_t>(logits_TU.size(1)), 0.0);
  for (int64_t t = 0; t < logits_TU.size(0); ++t) {
    const int64_t last = best_units(noisy_TU[t], k).back();
    const double threshold = noisy_TU[t][last].item<double>();
    for (int64_t u = 0; u < logits_TU.size(1); ++u) {
      const double z =
          (threshold - logits_TU[t][u].item<double>()) / noise_std_TU[t][u].item<double>();
      load[u] += 1.0 - 0.5 * std::erfc(-z / std::sqrt(2.0));
    }
  }
  return squared_variation(load);
}

}  // namespace shoal::testing
