#include "tests/support/moe_layer_fixture.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "moe/experts/expert_bank.h"
#include "runtime/data/loader/data_order.h"
#include "tests/support/gradient_check.h"

namespace shoal::testing {
namespace {

constexpr const char* kPath = "blocks.1.moe_c";

StepContext step_of(const LayerCase& test, int64_t first, int64_t count) {
  StepContext step;
  step.seed = 3;
  step.step = 5;
  step.training = test.training;
  step.sample_b = torch::arange(first, first + count) + 100;
  step.samples_per_group = test.samples_per_group;
  step.samples_in_step = step.samples_in_micro = test.num_samples;
  if (!test.lengths.empty()) {
    step.length_b = torch::tensor(test.lengths, torch::kInt64).narrow(0, first, count);
  }
  return step;
}

/// Some samples of a case.
class SomeSamples {
 public:
  SomeSamples(const LayerCase& test, int64_t first, int64_t count) {
    for (int64_t sample = 0; sample < test.num_samples; ++sample) {
      const bool is_own = sample >= first && sample < first + count;
      const int64_t length =
          test.lengths.empty() ? test.rows_per_sample : test.lengths[static_cast<size_t>(sample)];
      if (is_own) lengths_.push_back(length);
      if (is_own) num_rows_ = std::max(num_rows_, length);
      if (sample < first) first_token_ += length;
      num_tokens_ += length;
    }
    if (!test.lengths.empty()) num_rows_ += test.padding;
  }
  int64_t num_tokens() const { return num_tokens_; }
  /// [T, D] of all tokens -> [b, R, D], NaN in place of padding.
  torch::Tensor batch(const torch::Tensor& all_TD) const {
    torch::Tensor batch = torch::full({count(), num_rows_, all_TD.size(1)}, NAN, all_TD.options());
    for_tokens(batch, [&](torch::Tensor rows, int64_t token) {
      rows.copy_(all_TD.narrow(0, token, rows.size(0)));
    });
    return batch;
  }
  /// The other way round; zeros in place of other tokens.
  torch::Tensor in_place_of_all(const torch::Tensor& batch) const {
    torch::Tensor all_TD = torch::zeros({num_tokens_, batch.size(2)}, batch.options());
    for_tokens(batch, [&](const torch::Tensor& rows, int64_t token) {
      all_TD.narrow(0, token, rows.size(0)).copy_(rows);
    });
    return all_TD;
  }
  torch::Tensor sum_of_padding(const torch::Tensor& batch) const {
    const torch::Tensor padding = batch.abs();
    for_tokens(padding, [](torch::Tensor rows, int64_t) { rows.zero_(); });
    return padding.sum();
  }

 private:
  int64_t count() const { return static_cast<int64_t>(lengths_.size()); }
  template <class Use>
  void for_tokens(const torch::Tensor& batch, const Use& use) const {
    int64_t token = first_token_;
    for (int64_t b = 0; b < count(); ++b) {
      const int64_t length = lengths_[static_cast<size_t>(b)];
      use(batch[b].narrow(0, 0, length), token);
      token += length;
    }
  }

  std::vector<int64_t> lengths_;
  int64_t num_rows_ = 1, first_token_ = 0, num_tokens_ = 0;
};

/// Shares of whole groups: the first rank four, the second none, then one each; the last the rest.
/// Padded layers count on what loaders give out.
std::vector<int64_t> group_shares(int64_t num_groups, int64_t num_ranks, CapacityMode mode) {
  std::vector<int64_t> shares(static_cast<size_t>(num_ranks), 0);
  if (mode == CapacityMode::kPadded) {
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      shares[static_cast<size_t>(rank)] =
          samples_of_rank({0, num_groups}, /*group=*/1, rank, num_ranks).count;
    }
    return shares;
  }
  int64_t left = num_groups;
  for (int64_t rank = 0; rank + 1 < num_ranks; ++rank) {
    const int64_t wanted = rank == 0 ? 4 : rank == 1 && num_ranks > 2 ? 0 : 1;
    shares[static_cast<size_t>(rank)] = std::min(left, wanted);
    left -= shares[static_cast<size_t>(rank)];
  }
  shares.back() += left;
  return shares;
}

void add(LayerResult& sum, const LayerResult& part) {
  for (const auto& [name, tensor] : part.tensors) {
    const auto [place, is_new] = sum.tensors.try_emplace(name, tensor.clone());
    if (!is_new) place->second += tensor;
  }
  sum.stats = sum.stats.defined() ? sum.stats + part.stats : part.stats;
  sum.loss += part.loss;
}

LayerCase make_case(std::string name, const Choice<Router>& router, const Capacity& capacity,
                    const std::vector<std::pair<std::string, ScopeKind>>& losses) {
  return {std::move(name), layer_options(router, capacity, losses)};
}

}  // namespace

LayerResult run_layer(const LayerCase& test, int64_t first, int64_t count, RankGrid& grid) {
  MoeLayer layer(test.options, test.width, kPath,
                 {.grid = &grid,
                  .tensor_options = torch::kFloat64,
                  .placement = test.placement,
                  .unit_load = test.unit_load});
  const std::vector<Parameter> parameters = parameters_of(layer, kPath);
  initialise(parameters, 9);
  initialise(buffers_of(layer, kPath), 9);
  const SomeSamples samples(test, first, count);
  const std::vector<int64_t> all_sizes{samples.num_tokens(), test.width};
  const torch::Tensor x = samples.batch(some_numbers(all_sizes, 31)).set_requires_grad(true);
  const MoeOutput output = layer.forward(x, step_of(test, first, count));
  const torch::Tensor upstream = samples.batch(some_numbers(all_sizes, 32)).nan_to_num();
  torch::Tensor loss = (output.y_BRD * upstream).sum() / static_cast<double>(samples.num_tokens());
  if (output.auxiliary_loss.defined()) loss = loss + output.auxiliary_loss;
  loss.backward();

  LayerResult result;
  result.loss = loss.item<double>();
  result.stats = output.stats.sums;
  result.placement = output.stats.placement;
  result.tensors["y"] = samples.in_place_of_all(output.y_BRD.detach());
  result.tensors["x.grad"] = samples.in_place_of_all(x.grad());
  result.tensors["padding"] =
      samples.sum_of_padding(output.y_BRD.detach()) + samples.sum_of_padding(x.grad());
  for (const Parameter& parameter : parameters) {
    const torch::Tensor grad = parameter.tensor.grad();
    if (!grad.defined()) continue;  // learned noise in evaluation
    if (!parameter.is_stacked()) result.tensors[parameter.name + ".grad"] = grad.clone();
    for (size_t row = 0; row < parameter.unit_ids.size(); ++row) {
      result.tensors[name_of_unit(parameter.name, parameter.unit_ids[row]) + ".grad"] =
          grad[static_cast<int64_t>(row)].clone();
    }
  }
  return result;
}

LayerResult run_layer_on(const LayerCase& test, int64_t expert_ranks, int64_t replicas) {
  const std::vector<int64_t> shares =
      group_shares(test.num_samples / test.samples_per_group, expert_ranks * replicas,
                   test.options.capacity.mode);
  LayerResult sum;
  std::vector<LayerResult> parts(shares.size());
  run_grid(expert_ranks, replicas, [&](RankGrid& grid) {
    const auto rank = static_cast<size_t>(grid.world->rank());
    int64_t first = 0;
    for (size_t r = 0; r < rank; ++r) first += shares[r] * test.samples_per_group;
    parts[rank] = run_layer(test, first, shares[rank] * test.samples_per_group, grid);
  });
  for (const LayerResult& part : parts) add(sum, part);
  return sum;
}

Difference difference(const LayerResult& result, const LayerResult& expected) {
  double largest_gradient = 1e-30;
  for (const auto& [name, tensor] : expected.tensors) {
    if (name != "y") {
      largest_gradient = std::max(largest_gradient, tensor.abs().max().item<double>());
    }
  }
  Difference worst;
  const auto note = [&](double value, const std::string& where) {
    if (worst_of(worst.value, value) > worst.value) worst = {worst_of(worst.value, value), where};
  };
  for (const auto& [name, tensor] : expected.tensors) {
    const auto found = result.tensors.find(name);
    if (found == result.tensors.end()) return {1e30, name + " is missing"};
    const double scale = name == "y" ? tensor.abs().max().item<double>() : largest_gradient;
    note((found->second - tensor).abs().max().item<double>() / scale, name);
  }
  if (result.tensors.size() != expected.tensors.size()) return {1e30, "more tensors"};
  note(std::abs(result.loss - expected.loss) / std::abs(expected.loss), "loss");
  return worst;
}

MoeOptions layer_options(const Choice<Router>& router, const Capacity& capacity,
                         const std::vector<std::pair<std::string, ScopeKind>>& losses,
                         int64_t num_units) {
  MoeOptions options;
  options.router = router;
  options.capacity = capacity;
  options.experts =
      Choice<UnitBank>("plain", ExpertBank::Options{num_units, 7, Activation::kGelu, true});
  for (const auto& [name, scope] : losses) {
    options.losses->emplace_back(name, BalanceLossOptions{0.3, scope});
  }
  return options;
}

std::vector<LayerCase> layer_cases() {
  const auto top_k = [](int64_t k, RouterNoise noise, const CombineWeights& weights = {}) {
    return Choice<Router>("top_k", ScoreOptions{k, noise, weights});
  };
  const Choice<Router> noisy = top_k(2, RouterNoise::kGaussian);
  const Choice<Router> importance(
      "importance_score",
      ImportanceScoreRouter::Options{{1, RouterNoise::kGaussian, {}}, 0.3, 0.0});
  const auto capacity = [](CapacityMode mode, CapacityOrder order) {
    return Capacity{mode, 0.75, 0, 1, order};
  };
  using enum CapacityMode;
  using enum CapacityOrder;
  return {
      make_case("dropless", noisy, {}, {{"importance", ScopeKind::kGroup}}),
      make_case("slot_major", noisy, capacity(kCapped, kSlotMajor),
                {{"importance", ScopeKind::kGroup}, {"load", ScopeKind::kGroup}}),
      make_case("batch_priority", noisy, capacity(kCapped, kBatchPriority),
                {{"load", ScopeKind::kSequence}}),
      make_case("probability", noisy, capacity(kCapped, kProbability),
                {{"importance", ScopeKind::kGlobal}, {"load", ScopeKind::kGlobal}}),
      make_case("position", noisy, capacity(kCapped, kPosition), {}),
      make_case("padded", noisy, capacity(kPadded, kSlotMajor),
                {{"importance", ScopeKind::kSequence}}),
      make_case("importance_score", importance, capacity(kCapped, kSlotMajor),
                {{"importance", ScopeKind::kGroup}, {"load", ScopeKind::kGroup}}),
      make_case("renormalised", top_k(3, RouterNoise::kNone, {Normalise::kTopkSoftmax, true, 2.5}),
                capacity(kCapped, kProbability), {{"importance", ScopeKind::kGroup}}),
      make_case("summed", top_k(2, RouterNoise::kNone, {Normalise::kSum, false, 0.5}),
                capacity(kPadded, kBatchPriority), {}),
  };
}

}  // namespace shoal::testing
