#include "moe/moe_stats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

// U units  E expert ranks  L balance losses
namespace shoal {
namespace {

// `sums`: each unit's load, then these, a value for each loss, and maybe each unit's score.
constexpr int64_t kTokens = 0, kChoices = 1, kKept = 2, kUnrouted = 3, kEntropy = 4,
                  kMultiplyAdds = 5, kItems = 6, kFixed = 7;

/// Entropy of the shares value / total, in nats.
template <class Value>
double entropy_of(const std::vector<Value>& values, double total) {
  double entropy = 0.0;
  for (const Value value : values) {
    const double share = static_cast<double>(value) / total;
    if (share > 0) entropy -= share * std::log(share);
  }
  return entropy;
}

double deviation(const std::vector<int64_t>& value, double mean) {
  double sum = 0.0;
  for (const int64_t v : value) {
    sum += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean);
  }
  return std::sqrt(sum / static_cast<double>(value.size()));
}

void set_load(MoeReport& report) {
  const auto& load = report.load_U;
  if (load.empty()) return;
  const int64_t total = std::accumulate(load.begin(), load.end(), int64_t{0});
  const auto [least, most] = std::minmax_element(load.begin(), load.end());
  report.load_min = static_cast<double>(*least);
  report.load_max = static_cast<double>(*most);
  report.load_mean = static_cast<double>(total) / static_cast<double>(load.size());
  report.dead_units = std::count(load.begin(), load.end(), 0);
  if (total == 0) return;
  report.load_cv = deviation(load, report.load_mean) / report.load_mean;
  if (load.size() < 2) return;
  report.load_entropy =
      entropy_of(load, static_cast<double>(total)) / std::log(static_cast<double>(load.size()));
}

std::vector<double> rank_overload(const std::vector<int64_t>& load_U,
                                  const UnitPlacement& placement) {
  std::vector<double> load_E;
  for (int64_t rank = 0; rank < placement.num_ranks(); ++rank) {
    int64_t load = 0;
    for (const int64_t unit : placement.units_of_rank(rank)) {
      load += load_U[static_cast<size_t>(unit)];
    }
    load_E.push_back(static_cast<double>(load));
  }
  const double total = std::accumulate(load_E.begin(), load_E.end(), 0.0);
  for (double& load : load_E) {
    load = total == 0 ? 0.0 : load * static_cast<double>(load_E.size()) / total;
  }
  return load_E;
}

/// By the scores' sums and the sum of their entropies.
void set_scores(MoeReport& report, const double* score, double entropy) {
  const size_t num_units = report.load_U.size();
  // The number of tokens, but for rounding and tokens whose scores all underflow.
  const double mass = std::accumulate(score, score + num_units, 0.0);
  report.mean_score_U.assign(num_units, 0.0);
  if (mass == 0) return;
  for (size_t u = 0; u < num_units; ++u) report.mean_score_U[u] = score[u] / mass;
  const double information = entropy_of(report.mean_score_U, 1.0) - entropy / mass;
  report.mutual_information = information < 0 ? 0.0 : information;  // rounding; NaN stays
}

struct Number {
  double count;
  torch::Tensor scalar;  ///< replaces `count` where defined
};

/// The loads, the numbers, and the scores if they are defined; float64.
torch::Tensor join(const torch::Tensor& load_U, const std::vector<Number>& numbers,
                   const torch::Tensor& score_U) {
  const torch::TensorOptions options = load_U.options();
  std::vector<torch::Tensor> parts{load_U};
  if (load_U.is_cpu()) {
    torch::Tensor last = torch::empty({static_cast<int64_t>(numbers.size())}, options);
    double* next = last.data_ptr<double>();
    for (const auto& [count, scalar] : numbers) {
      *next++ = scalar.defined() ? scalar.item<double>() : count;
    }
    parts.push_back(last);
  } else {
    for (const auto& [count, scalar] : numbers) {
      parts.push_back(scalar.defined() ? scalar.to(torch::kFloat64).reshape({1})
                                       : torch::full({1}, count, options));
    }
  }
  if (score_U.defined()) parts.push_back(score_U);
  return torch::cat(parts);
}

}  // namespace

torch::Tensor entropy_sum(const torch::Tensor& prob_TU) {
  // Below this the log of a float64 score is wrong, but the product is below 1e-35. No denormal,
  // which a processor may take for zero.
  constexpr double kTiny = std::numeric_limits<float>::min();
  return -prob_TU.clamp_min(kTiny).log_().mul_(prob_TU).sum(torch::kFloat64);
}

MoeStats make_stats(const std::string& layer, const UnitPlacement& placement, const StatSums& sums,
                    const std::vector<std::string>& loss_names) {
  TORCH_CHECK(sums.losses.size() == loss_names.size(), layer, ": ", sums.losses.size(), " losses, ",
              loss_names.size(), " names");
  const auto choices = static_cast<double>(sums.choices);
  std::vector<Number> numbers{{static_cast<double>(sums.tokens), {}},
                              {choices, {}},
                              {choices, sums.kept},
                              {0, sums.unrouted},
                              {0, sums.entropy},
                              {sums.multiply_adds, {}},
                              {static_cast<double>(sums.items > 0 ? sums.items : sums.tokens), {}}};
  for (const torch::Tensor& loss : sums.losses) numbers.push_back({0, loss.detach()});
  return {layer, placement, loss_names, join(sums.load_U, numbers, sums.score_U),
          sums.score_U.defined()};
}

void MoeStats::add(const MoeStats& other) {
  TORCH_CHECK(
      layer == other.layer && loss_names == other.loss_names && has_scores == other.has_scores,
      "statistics of ", other.layer, " added to those of ", layer);
  sums = sums + other.sums;
}

MoeReport report(const MoeStats& stats) {
  const torch::Tensor host = stats.sums.to(torch::kCPU).contiguous();
  const int64_t num_units = stats.placement.num_units();
  const int64_t before_scores = num_units + kFixed + static_cast<int64_t>(stats.loss_names.size());
  TORCH_CHECK(host.numel() == before_scores + (stats.has_scores ? num_units : 0), stats.layer, ": ",
              host.numel(), " sums for ", num_units, " units");
  const double* sums = host.const_data_ptr<double>();
  const double* fixed = sums + num_units;
  MoeReport result;
  result.layer = stats.layer;
  for (int64_t u = 0; u < num_units; ++u) result.load_U.push_back(std::llround(sums[u]));
  result.num_memory_units = stats.num_memory_units;
  set_load(result);
  if (stats.load_is_work) {
    result.rank_overload_E = rank_overload(result.load_U, stats.placement);
  }
  result.tokens = std::llround(fixed[kTokens]);
  const double tokens = std::max(fixed[kTokens], 1.0);
  const double most_entropy = std::log(static_cast<double>(std::max<int64_t>(2, num_units)));
  result.router_entropy = fixed[kEntropy] / tokens / most_entropy;
  if (stats.has_scores) set_scores(result, sums + before_scores, fixed[kEntropy]);
  if (fixed[kMultiplyAdds] > 0) result.multiply_adds = fixed[kMultiplyAdds] / tokens;
  result.dropped = fixed[kChoices] > 0 ? 1.0 - fixed[kKept] / fixed[kChoices] : 0.0;
  result.unrouted = fixed[kUnrouted] / tokens;
  for (size_t i = 0; i < stats.loss_names.size(); ++i) {
    result.losses.emplace_back(stats.loss_names[i], fixed[kFixed + static_cast<int64_t>(i)] /
                                                        std::max(fixed[kItems], 1.0));
  }
  return result;
}

void add(std::vector<MoeStats>& total, const std::vector<MoeStats>& pass) {
  if (total.empty()) {
    total = pass;
    for (MoeStats& stats : total) stats.first_unit_T = torch::Tensor();  // of one pass alone
    return;
  }
  TORCH_CHECK(total.size() == pass.size(), "statistics of ", pass.size(),
              " layers added to those of ", total.size());
  for (size_t layer = 0; layer < total.size(); ++layer) total[layer].add(pass[layer]);
}

ReducedStats reduce(const torch::Tensor& numbers, const std::vector<MoeStats>& layers,
                    Communicator& world) {
  std::vector<torch::Tensor> parts{layers.empty() ? numbers : numbers.to(layers[0].sums.device())};
  for (const MoeStats& stats : layers) parts.push_back(stats.sums);
  torch::Tensor sums = torch::cat(parts).to(torch::kCPU);
  all_reduce(world, sums);
  int64_t offset = numbers.numel();
  ReducedStats result{sums.narrow(0, 0, offset), {}};
  for (MoeStats stats : layers) {
    const int64_t length = stats.sums.numel();
    stats.sums = sums.narrow(0, offset, length);
    offset += length;
    result.layers.push_back(report(stats));
  }
  return result;
}

}  // namespace shoal
