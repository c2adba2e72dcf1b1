#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <string>
#include <vector>

#include "launch/data/recipe_source.h"
#include "launch/job/rank_devices.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/checkpoint_load.h"
#include "parallel/checkpoint/state_list.h"
#include "runtime/base/error.h"
#include "runtime/files/file_system.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/model_on.h"
#include "tests/support/ranks.h"
#include "tests/support/routing_matrix.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thread_communicator.h"
#include "tests/support/train_harness.h"

namespace shoal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Overrides = std::vector<std::string>;

constexpr int64_t kSteps = 4;
constexpr double kEpsilon = 0.00390625;  ///< of bfloat16: half the distance of two values at 1
const std::string kNarrow = "train.precision=bfloat16";
const std::string kFloat32 = "train.precision=float32";

TrainingTrace train(const Overrides& overrides, int64_t expert_ranks = 1, int64_t replicas = 1) {
  TrainingTrace trace;
  std::mutex mutex;
  run_owning_ranks(expert_ranks * replicas, [&](std::unique_ptr<Communicator> world) {
    const bool is_first = world->rank() == 0;
    TrainingTrace own = train_and_trace(
        kEqualityRecipe, joined(overrides, {fmt::format("parallel.expert_ranks={}", expert_ranks)}),
        kSteps, std::move(world));
    const std::lock_guard lock(mutex);
    if (is_first) trace = std::move(own);
  });
  return trace;
}

/// Every backbone, and in the Sparse-MLP every router with every loss that it takes.
std::vector<EqualityCase> narrow_cases() {
  std::vector<EqualityCase> cases{
      {"SparseMlp", {}, {}},
      {"Mixer",
       {"model={backbone: mixer, patch: 4, width: 8, depth: 2, token_hidden: 6, channel_hidden: "
        "12}"},
       {}},
      {"Vit", {vit()}, {}},
      {"VitMeanWithExperts", {vit(kBlockExperts + ", pool: mean")}, {}},
      {"VitWithNexus", {vit(kBlockNexus)}, {}},
      {"ConvNext", {convnext("gelu: tanh")}, {}},
      {"ConvNextWithExperts", {convnext(kBlockExperts)}, {}},
      {"ConvNextWithNexus", {convnext(kBlockNexus)}, {}},
      {"ChannelMlp", {"model.sparse.channel_moe=null", "model.sparse.channel_hidden=12"}, {}},
      {"Recompute", {"train.recompute=true", vit(kBlockExperts)}, {}},
      {"Capped", capped("batch_priority"), {}},
      {"Padded", padded(), {}},
      {"Clipped", {kClip, equality_optimizers().back().second}, {}}};
  for (const EqualityCase& test : routing_matrix()) {
    if (test.name.find("_Dropless_") != std::string::npos) cases.push_back(test);
  }
  return cases;
}

class Bfloat16 : public ::testing::TestWithParam<EqualityCase> {};

TEST_P(Bfloat16, LossesAreNearThoseOfFloat32) {
  const TrainingTrace expected = train(joined(GetParam().overrides, {kFloat32}));
  const TrainingTrace actual = train(joined(GetParam().overrides, {kNarrow}));
  for (size_t step = 0; step < expected.losses.size(); ++step) {
    // Each of some ten layers rounds by up to epsilon, alike for no two values; a choice that falls
    // otherwise moves a token to a unit that it liked about as well.
    EXPECT_NEAR(actual.losses[step], expected.losses[step], 12 * kEpsilon * expected.losses[step])
        << step;
    EXPECT_GT(actual.grad_norms[step], 0.0);
  }
  EXPECT_NE(actual.losses, expected.losses);  // it does compute in bfloat16
  EXPECT_NEAR(actual.eval_loss, expected.eval_loss, 12 * kEpsilon * expected.eval_loss);
}

INSTANTIATE_TEST_SUITE_P(Cases, Bfloat16, ::testing::ValuesIn(narrow_cases()),
                         [](const auto& info) { return info.param.name; });

// Of the first step, from the same weights; later ones differ by what the steps before have made of
// roundings. What comes back has passed as many layers once more.
TEST(Bfloat16Training, NormOfGradientsIsNearThatOfFloat32) {
  for (const Overrides& what :
       {Overrides{}, Overrides{kClip}, accumulated(), Overrides{vit(kBlockExperts)},
        Overrides{vit(kBlockNexus)}, Overrides{convnext(kBlockNexus)}}) {
    SCOPED_TRACE(what.empty() ? "" : what.front());
    const double expected = train(joined(what, {kFloat32})).grad_norms.front();
    const double actual = train(joined(what, {kNarrow})).grad_norms.front();
    EXPECT_NEAR(actual, expected, 24 * kEpsilon * expected);
  }
}

/// Sums over ranks are rounded otherwise, and each step starts from what the last one made of that.
void expect_near(const TrainingTrace& actual, const TrainingTrace& expected) {
  for (size_t step = 0; step < expected.losses.size(); ++step) {
    const double allowed = static_cast<double>(step + 1) * 3 * kEpsilon;
    EXPECT_NEAR(actual.losses[step], expected.losses[step], allowed * expected.losses[step]);
    EXPECT_NEAR(actual.grad_norms[step], expected.grad_norms[step],
                4 * allowed * expected.grad_norms[step]);
  }
}

TEST(Bfloat16Ranks, ParallelEqualsSerialToRounding) {
  for (const Overrides& what :
       {Overrides{}, Overrides{"model.sparse.channel_moe.exchange.chunks=2"},
        Overrides{vit(kBlockExperts)}, Overrides{convnext(kBlockNexus)}, accumulated()}) {
    const TrainingTrace expected = train(joined(what, {kNarrow}));
    for (const auto& [expert_ranks, replicas] : {std::pair{2, 1}, std::pair{1, 2}}) {
      SCOPED_TRACE(fmt::format("{} expert ranks x {} replicas", expert_ranks, replicas));
      expect_near(train(joined(what, {kNarrow}), expert_ranks, replicas), expected);
    }
  }
}

TEST(Bfloat16Ranks, FewRowsAUnitTrainAlikeToRounding) {
  for (const Overrides& what : {capped("probability"), padded()}) {
    const TrainingTrace expected = train(joined(what, {kNarrow}));
    EXPECT_GT(expected.dropped, 0.0);
    for (const int64_t expert_ranks : {2, 4}) {
      const TrainingTrace actual = train(joined(what, {kNarrow}), expert_ranks);
      // Scores that differ by a rounding may change places: of a stage's 128 choices four here.
      EXPECT_NEAR(actual.dropped, expected.dropped, 4.0 / 128);
      expect_near(actual, expected);
    }
  }
}

// A node's sum of a token's rows is rounded once more than those of one rank.
TEST(Bfloat16Ranks, NodesAddUpToRounding) {
  const TrainingTrace expected = train({kNarrow});
  Overrides nodes{kNarrow, "parallel.ranks_per_node=2"};
  for (const char* stage : {"token_moe", "channel_moe"}) {
    nodes.push_back(fmt::format("model.sparse.{}.exchange.hierarchical=true", stage));
  }
  expect_near(train(nodes, 4), expected);
}

// Weights and state are float32: their shards are updated as the whole, from sums that are rounded
// otherwise.
TEST(Bfloat16Ranks, ShardedOptimizersTrainAlikeAndClipByTheSameNorm) {
  for (const auto& [name, optimizer] : equality_optimizers()) {
    SCOPED_TRACE(name);
    const Overrides what{kNarrow, optimizer, kClip};
    const TrainingTrace expected = train(what, 1, 2);
    const TrainingTrace actual = train(joined(what, {"parallel.shard_optimizer=true"}), 1, 2);
    for (const double norm : expected.grad_norms) EXPECT_GT(norm, kClipNorm);
    expect_near(actual, expected);
  }
}

// Of bfloat16 rows a bfloat16 payload loses nothing.
TEST(Bfloat16Ranks, RowsTravelInBfloat16ByThemselves) {
  const TrainingTrace same = train({kNarrow}, 2);
  Overrides narrow{kNarrow};
  for (const char* stage : {"token_moe", "channel_moe"}) {
    narrow.push_back(fmt::format("model.sparse.{}.exchange.payload=bfloat16", stage));
  }
  EXPECT_THAT(differences(same, train(narrow, 2), 0.0), IsEmpty());
}

struct Training {
  Recipe recipe;
  RankGrid grid = self_grid();
  OpenSplit data;
  std::unique_ptr<Session> session;

  explicit Training(const Overrides& overrides) : recipe(equality_recipe(overrides)) {
    data = open_split(make_source(recipe), Split::kTrain);
    session = std::make_unique<Session>(recipe, model_on(recipe, data, grid), data, grid);
  }
  std::vector<double> losses(int64_t steps) {
    std::vector<double> result;
    for (int64_t step = 0; step < steps; ++step) {
      result.push_back(reduce(session->step({}), *grid.world).loss);
    }
    return result;
  }
  std::string digest() {
    return state_digest(*session, session->steps_done(), session->samples_done(), *grid.world);
  }
  std::string save(const std::string& folder) {
    PosixFileSystem files;
    CheckpointWriter::Options options;
    options.folder = folder;
    options.run_id = "test";
    options.recipe = kEqualityRecipe;
    CheckpointWriter writer(options, *grid.world, files);
    return writer.save(*session, {session->steps_done(), session->samples_done(), std::nullopt})
        .path;
  }
  void load(const std::string& path) { load_checkpoint(path, *session, *grid.world, {}); }
};

TEST(Bfloat16Training, WeightsAndStateAreFloat32) {
  Training run({kNarrow, "optimizer={name: adamw, lr: 1e-6}"});
  std::vector<torch::Tensor> before;
  for (const Parameter& parameter : run.session->parameters()) {
    EXPECT_EQ(parameter.tensor.scalar_type(), torch::kFloat32) << parameter.name;
    before.push_back(parameter.tensor.detach().clone());
  }
  run.losses(3);  // in the first the head is zero, and lets nothing through
  int64_t moved = 0, represented = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    const torch::Tensor after = run.session->parameters()[i].tensor.detach();
    EXPECT_EQ(run.session->parameters()[i].tensor.grad().scalar_type(), torch::kFloat32);
    const torch::Tensor has_moved = after != before[i];
    moved += has_moved.sum().item<int64_t>();
    represented += (has_moved & (after.to(torch::kBFloat16).to(torch::kFloat32) == after))
                       .sum()
                       .item<int64_t>();
  }
  // A step of a millionth moves weights by less than bfloat16 could tell, and to where it has
  // hardly any values.
  EXPECT_GT(moved, 100);
  EXPECT_LT(represented, moved / 20);
}

TEST(Bfloat16Training, ResumedEqualsUninterrupted) {
  const Overrides what = joined(noisy(), {kNarrow, "optimizer={name: adamw, lr: 1e-2}"});
  const ScratchFolder scratch;
  Training whole(what), first(what), second(what);
  const std::vector<double> expected = whole.losses(6);
  first.losses(3);
  second.load(first.save(scratch.file("ckpt")));
  EXPECT_EQ(second.losses(3), std::vector<double>(expected.begin() + 3, expected.end()));
  EXPECT_EQ(second.digest(), whole.digest());
}

TEST(Bfloat16Training, CheckpointsGoToFloat32AndBack) {
  const std::string optimizer = "optimizer={name: adamw, lr: 1e-2}";
  const ScratchFolder scratch;
  for (const auto& [from, to] : {std::pair{kNarrow, kFloat32}, std::pair{kFloat32, kNarrow}}) {
    Training first({from, optimizer}), second({to, optimizer});
    first.losses(2);
    second.load(first.save(scratch.file(from)));
    EXPECT_EQ(second.digest(), first.digest());
    const double expected = first.losses(1).front();
    EXPECT_NEAR(second.losses(1).front(), expected, 12 * kEpsilon * expected);
  }
}

TEST(Bfloat16Training, IsRefusedWhereTheProcessorHasNoInstructionsForIt) {
  const c10::Device cpu(c10::DeviceType::CPU), gpu(c10::DeviceType::CUDA, 0);
  try {
    check_precision(Precision::kBfloat16, cpu, /*has_bfloat16=*/false);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kTopology);
    EXPECT_THAT(std::string(error.what()) + error.hint(),
                AllOf(HasSubstr("avx512_bf16"), HasSubstr("train.precision=float32")));
  }
  check_precision(Precision::kBfloat16, cpu, /*has_bfloat16=*/true);
  check_precision(Precision::kBfloat16, gpu, /*has_bfloat16=*/false);
  check_precision(Precision::kFloat32, cpu, /*has_bfloat16=*/false);
}

}  // namespace
}  // namespace shoal::testing
