#include "parallel/gradients/layer_norms.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/gradients/optimizer_shards.h"
#include "tests/support/parallel_checks.h"
#include "tests/support/ranks.h"

namespace shoal {
namespace {

using testing::make_parameter;
using testing::run_grid;
using testing::wave;
using torch::Tensor;

constexpr int64_t kFiveExperts = 5;
constexpr double kSumTolerance = 1e-14;  // sums of 60 squares in another order

enum MatrixKind { kWeight, kGradient, kUpdate };

/// The numbers of a matrix, by its place in the model and, in a stack, by the expert.
Tensor matrix_of(at::IntArrayRef sizes, MatrixKind kind, int64_t place, int64_t expert = 0) {
  const double scale = kind == kUpdate ? 0.01 : 1.0;
  return wave(sizes, 100 * kind + 10 * place + expert) * scale;
}

/// Copies the numbers of its matrices into a tensor of a parameter's shape.
void fill_matrices(const Tensor& tensor, const Parameter& parameter, MatrixKind kind,
                   int64_t place) {
  if (!parameter.is_stacked()) tensor.copy_(matrix_of(tensor.sizes(), kind, place));
  for (size_t row = 0; row < parameter.unit_ids.size(); ++row) {
    const Tensor matrix = tensor[static_cast<int64_t>(row)];
    matrix.copy_(matrix_of(matrix.sizes(), kind, place, parameter.unit_ids[row]));
  }
}

/// A model whose experts `ids` live here; the second parameter is frozen.
std::vector<Parameter> model_with_experts(const std::vector<int64_t>& ids) {
  std::vector<Parameter> parameters{
      make_parameter("fc.weight", {7, 3}), make_parameter("frozen.weight", {2}),
      make_parameter("experts.*.fc.weight", {2, 3}, &ids), make_parameter("fc.bias", {3}),
      make_parameter("position", {4})};
  parameters[1].tensor.set_requires_grad(false);
  return parameters;
}

/// The norms of a step that adds kUpdate, of summed gradients kGradient.
std::vector<LayerNorms> norms_on(RankGrid& grid, bool shards) {
  const torch::NoGradGuard no_grad;
  std::vector<int64_t> ids;
  for (int64_t id = grid.expert->rank(); id < kFiveExperts; id += grid.expert->size()) {
    ids.push_back(id);
  }
  const std::vector<Parameter> parameters = model_with_experts(ids);
  for (size_t i = 0; i < parameters.size(); ++i) {
    fill_matrices(parameters[i].tensor, parameters[i], kWeight, static_cast<int64_t>(i));
  }
  GradientSync sync(group_parameters(parameters, grid), *grid.world, /*bucket_bytes=*/100, shards);
  const auto sharded = shards ? std::make_unique<OptimizerShards>(sync) : nullptr;
  sync.zero_grad();
  for (const ParameterGroup& group : sync.groups()) {
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      const Tensor& gradient = group.parameters[i].tensor.grad();
      fill_matrices(gradient, group.parameters[i], kGradient, group.places[i]);
      gradient.div_(static_cast<double>(group.replicas->size()));
    }
  }
  sync.reduce();
  const GradientShare share = shards ? sharded->share() : share_of(sync.groups());
  const GradientStats stats = gradient_stats(share);
  sync.scale(0.5);  // clipping
  const std::vector<Tensor> before = copy_weights(share);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor update = torch::empty_like(parameters[i].tensor);
    fill_matrices(update, parameters[i], kUpdate, static_cast<int64_t>(i));
    parameters[i].tensor.add_(update);
  }
  return layer_norms(parameters, share, stats, before, *grid.world);
}

/// The norm of matrices that are summed over the kinds.
double plain_norm(const std::vector<MatrixKind>& kinds,
                  const std::function<std::vector<Tensor>(MatrixKind)>& of) {
  Tensor sum = torch::zeros({}, torch::kDouble);
  for (const MatrixKind kind : kinds) {
    std::vector<Tensor> flat;
    for (const Tensor& matrix : of(kind)) flat.push_back(matrix.reshape({-1}));
    sum = sum + torch::cat(flat);
  }
  return sum.norm().item<double>();
}

void expect_norms(const LayerNorms& layer, const std::string& name,
                  const std::function<std::vector<Tensor>(MatrixKind)>& of) {
  EXPECT_EQ(layer.layer, name);
  EXPECT_NEAR(layer.weight, plain_norm({kWeight, kUpdate}, of), kSumTolerance * layer.weight)
      << name;
  EXPECT_NEAR(layer.gradient, plain_norm({kGradient}, of), kSumTolerance * layer.gradient) << name;
  // A difference of numbers near 1.
  EXPECT_NEAR(layer.update, plain_norm({kUpdate}, of), kSumTolerance * layer.weight) << name;
}

class LayerNormsRanks : public ::testing::TestWithParam<bool> {};

TEST_P(LayerNormsRanks, AreThoseOfAllMatricesOnceOnEveryGrid) {
  for (const auto& [expert_ranks, replicas] :
       {std::pair{1, 1}, {2, 1}, {1, 2}, {3, 1}, {2, 2}, {4, 1}, {6, 1}}) {
    SCOPED_TRACE(fmt::format("{} expert ranks x {} replicas", expert_ranks, replicas));
    run_grid(expert_ranks, replicas, [](RankGrid& grid) {
      const std::vector<LayerNorms> layers = norms_on(grid, GetParam());
      ASSERT_EQ(layers.size(), 3u);
      expect_norms(layers[0], "fc", [](MatrixKind kind) {
        return std::vector{matrix_of({7, 3}, kind, 0), matrix_of({3}, kind, 3)};
      });
      expect_norms(layers[1], "experts.*.fc", [](MatrixKind kind) {
        std::vector<Tensor> experts;
        for (int64_t id = 0; id < kFiveExperts; ++id)
          experts.push_back(matrix_of({2, 3}, kind, 2, id));
        return experts;
      });
      expect_norms(layers[2], "position",
                   [](MatrixKind kind) { return std::vector{matrix_of({4}, kind, 4)}; });
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, LayerNormsRanks, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Sharded" : "Whole"; });

}  // namespace
}  // namespace shoal
