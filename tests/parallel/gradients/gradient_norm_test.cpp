#include "parallel/gradients/gradient_norm.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/parallel_checks.h"
#include "tests/support/thread_communicator.h"

namespace shoal {
namespace {

using testing::agreed_norm;
using testing::make_parameter;
using testing::run_owning_ranks;
using testing::wave;
using torch::Tensor;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Parameter with_gradient(Parameter parameter, const Tensor& gradient) {
  parameter.tensor.mutable_grad() = gradient.detach();
  return parameter;
}

/// Six experts of which `ids` live here, and two whole parameters; gradients depend on the ids.
std::vector<Parameter> model(const std::vector<int64_t>& ids) {
  std::vector<Tensor> rows;
  for (const int64_t id : ids) rows.push_back(wave({4}, id));
  const Tensor stack = rows.empty() ? at::zeros({0, 4}, at::kDouble) : at::stack(rows);
  return {with_gradient(make_parameter("a", {3, 3}), wave({3, 3}, 50) * 2),
          with_gradient(make_parameter("b", {2}), wave({2}, 60)),
          with_gradient(make_parameter("e.*.w", {4}, &ids), stack)};
}

TEST(GradientNormRanks, IsTheSameHoweverExpertsAreSpread) {
  const Tensor flat =
      at::cat({(wave({3, 3}, 50) * 2).view({-1}), wave({2}, 60), wave({4}, 0), wave({4}, 1),
               wave({4}, 2), wave({4}, 3), wave({4}, 4), wave({4}, 5)});
  const double norm = flat.norm().item<double>();
  const double most = flat.abs().max().item<double>();
  struct Layout {
    int64_t world;
    int64_t expert_ranks;
    std::vector<std::vector<int64_t>> ids;
  };
  const std::vector<Layout> layouts = {
      {1, 1, {{0, 1, 2, 3, 4, 5}}},
      {2, 2, {{0, 1, 2}, {3, 4, 5}}},
      {2, 1, {{0, 1, 2, 3, 4, 5}}},
      {3, 3, {{0, 1, 2, 3, 4, 5}, {}, {}}},  // two ranks without units
      {4, 2, {{5, 0}, {1, 2, 3, 4}}},
      {4, 4, {{0}, {1, 2, 3}, {4}, {5}}},
  };
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(std::to_string(layout.world) + " ranks");
    run_owning_ranks(layout.world, [&](std::unique_ptr<Communicator> world) {
      RankGrid grid = make_rank_grid(std::move(world), layout.expert_ranks);
      const auto parameters = model(layout.ids[static_cast<size_t>(grid.expert->rank())]);
      const auto groups = group_parameters(parameters, grid);
      const GradientShare share = share_of(groups);
      EXPECT_NEAR(agreed_norm(groups, grid), norm, 1e-15 * 32 * norm);
      EXPECT_EQ(global_max_norm(share, *grid.world), most);
      EXPECT_EQ(first_nonfinite(gradient_stats(share), *grid.world), "");
    });
  }
}

TEST(GradientNormRanks, NamesTheFirstNonfiniteTensorInOrderOfRegistrationWithItsUnit) {
  for (const double bad : {kNaN, kInf, -kInf}) {
    run_owning_ranks(4, [&](std::unique_ptr<Communicator> world) {
      RankGrid grid = make_rank_grid(std::move(world), 2);
      const std::vector<int64_t> ids =
          grid.expert->rank() == 0 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{2, 3};
      auto parameters = model(ids);
      parameters.push_back(with_gradient(make_parameter("z", {2}), wave({2}, 1)));
      if (grid.expert->rank() == 1) parameters[2].tensor.mutable_grad()[1][2] = bad;
      const auto groups = group_parameters(parameters, grid);
      const GradientShare share = share_of(groups);
      GradientStats stats = gradient_stats(share);
      EXPECT_EQ(first_nonfinite(stats, *grid.world), "e.3.w");
      EXPECT_FALSE(std::isfinite(agreed_norm(groups, grid)));
      EXPECT_EQ(global_max_norm(share, *grid.world), kInf);
      // Only one replica of the unit reports it.
      const bool reports = grid.expert->rank() == 1 && grid.replica->rank() == 0;
      EXPECT_EQ(stats.nonfinite.empty(), !reports);

      parameters[3].tensor.mutable_grad()[0] = bad;
      EXPECT_EQ(first_nonfinite(gradient_stats(share), *grid.world), "e.3.w");
      parameters[1].tensor.mutable_grad()[0] = bad;
      EXPECT_EQ(first_nonfinite(gradient_stats(share), *grid.world), "b");
    });
  }
}

TEST(GradientNorm, AccumulatesFloat32InFloat64) {
  RankGrid grid = make_rank_grid(make_self_communicator(), 1);
  // In float32 the small ones would vanish beside the first.
  Tensor gradient = at::full({100'001}, 1e-4f, at::kFloat);
  gradient[0] = 4096.0f;
  const Parameter w = with_gradient(make_parameter("w", {100'001}, nullptr, at::kFloat), gradient);
  const double norm = agreed_norm(group_parameters({w}, grid), grid);
  const double small = static_cast<double>(1e-4f);
  // They add 1.2e-7; each addition to 2^24 rounds to a multiple of 2^-28.
  EXPECT_NEAR(norm, std::sqrt(4096.0 * 4096.0 + 1e5 * small * small), 1e-9);
}

TEST(GradientNorm, HasTheSameBitsForAnyNumberOfThreads) {
  RankGrid grid = make_rank_grid(make_self_communicator(), 1);
  const Parameter w = with_gradient(make_parameter("w", {300'007}, nullptr, at::kFloat),
                                    wave({300'007}, 1).to(at::kFloat));
  const GradientShare share = share_of(group_parameters({w}, grid));
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const double one = gradient_stats(share).square_sum;
  at::set_num_threads(3);
  const double three = gradient_stats(share).square_sum;
  at::set_num_threads(threads);
  EXPECT_EQ(one, three);
  EXPECT_NEAR(one, wave({300'007}, 1).square().sum().item<double>(), 1e-2);
}

TEST(GradientNorm, RefusesAMissingGradientAndTakesOverflowForWhatItIs) {
  RankGrid grid = make_rank_grid(make_self_communicator(), 1);
  const Parameter missing = make_parameter("w", {3});
  EXPECT_THROW(gradient_stats(share_of(group_parameters({missing}, grid))), c10::Error);
  const Parameter huge = with_gradient(make_parameter("w", {3}), at::full({3}, 1e200, at::kDouble));
  const GradientShare share = share_of(group_parameters({huge}, grid));
  EXPECT_EQ(gradient_stats(share).nonfinite, "");  // though the sum of squares overflows
  EXPECT_EQ(global_max_norm(share, *grid.world), 1e200);
}

TEST(GradientNorm, ClipFactorOnlyShrinks) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_factor(1.0, 1.0), 1.0);
  EXPECT_EQ(clip_factor(4.0, 1.0), 0.25);
  EXPECT_EQ(clip_factor(4.0, 2.0), 0.5);
  EXPECT_EQ(clip_factor(4.0, 0.0), 1.0);
}

}  // namespace
}  // namespace shoal
