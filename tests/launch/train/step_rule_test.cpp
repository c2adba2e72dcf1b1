#include "parallel/gradients/step_rule.h"
#include "launch/data/recipe_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "launch/step/session.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/checkpoint_load.h"
#include "parallel/checkpoint/state_list.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/model_fill.h"
#include "tests/support/model_on.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"

// u units (1 for a parameter that is not stacked)  n elements of a matrix
namespace shoal {
namespace {

using ::testing::IsEmpty;
using testing::ScratchFolder;
using NamedTensors = std::map<std::string, torch::Tensor>;

constexpr const char* kDense = "backbone.blocks.0.channel_mlp.fc1.weight";
constexpr const char* kExperts = "backbone.blocks.1.moe_c.experts.*.fc1.weight";
constexpr int64_t kPeriod = 3;
constexpr int64_t kRuleSteps = 8;

/// Half of each matrix is active. Every third step an eighth of its elements moves: the smallest
/// active weights are pruned, and those with the largest whole gradients grow from zero with fresh
/// momentum. Ties go to the lower index.
class MovingMask : public StepRule {
 public:
  explicit MovingMask(Parameter parameter) : parameter_(std::move(parameter)) {
    const torch::Tensor& weight = parameter_.tensor;
    const int64_t units = parameter_.is_stacked() ? weight.size(0) : 1;
    const int64_t numel = units == 0 ? 0 : weight.numel() / units;
    mask_ = torch::arange(numel).remainder(2).eq(0).expand({units, numel}).clone();
    mask_ = mask_.view(weight.sizes());
  }

  std::vector<std::string> needs_whole_gradients(int64_t step) override {
    if (!is_due(step)) return {};
    return {parameter_.name};
  }
  void before_norm(int64_t /*step*/, StepTensors& tensors) override {
    const OptimizerShards::Range own = tensors.gradient(parameter_.name);
    own.gradient.mul_(mask_.view({-1}).narrow(0, own.begin, own.gradient.numel()));
  }
  void after_update(int64_t step, StepTensors& tensors) override {
    const torch::NoGradGuard no_grad;
    if (is_due(step)) {
      move(tensors.whole_gradient(parameter_.name));
      const torch::Tensor momentum = tensors.read_state("m", parameter_.name);
      tensors.write_state("m", parameter_.name, momentum * mask_);
    }
    torch::Tensor weight = tensors.parameter(parameter_.name).tensor;
    weight.mul_(mask_);
  }
  void visit_state(StateVisitor& visitor) override {
    visitor.tensor(state_like("mask.", parameter_, mask_));
    visitor.integer("mask.moves." + parameter_.name, moves_);
  }

 private:
  static bool is_due(int64_t step) { return step % kPeriod == kPeriod - 1; }

  void move(const torch::Tensor& gradient) {
    ++moves_;
    if (mask_.numel() == 0) return;
    const int64_t units = parameter_.is_stacked() ? mask_.size(0) : 1;
    const torch::Tensor active_un = mask_.view({units, -1}), before_un = active_un.clone();
    const int64_t num_moved = active_un.size(1) / 8;
    const double kInf = std::numeric_limits<double>::infinity();
    const torch::Tensor size_un =
        parameter_.tensor.detach().reshape({units, -1}).abs().masked_fill(~before_un, kInf);
    const torch::Tensor pruned = at::argsort(size_un, /*stable=*/true, 1, /*descending=*/false);
    active_un.scatter_(1, pruned.narrow(1, 0, num_moved), false);
    const torch::Tensor slope_un =
        gradient.reshape({units, -1}).abs().masked_fill(before_un, -kInf);
    const torch::Tensor grown = at::argsort(slope_un, /*stable=*/true, 1, /*descending=*/true);
    active_un.scatter_(1, grown.narrow(1, 0, num_moved), true);
  }

  Parameter parameter_;
  torch::Tensor mask_;
  int64_t moves_ = 0;
};

StepRules masks(const Recipe& recipe, const BuiltModel& model, const StepScale& scale) {
  StepRules rules;
  for (const Parameter& parameter : model.parameters) {
    if (parameter.name != kDense && parameter.name != kExperts) continue;
    rules.push_back(std::make_unique<MovingMask>(parameter));
  }
  TORCH_CHECK(rules.size() == 2, "the masked parameters are not in the model");
  std::ranges::move(make_step_rules(recipe, model, scale), std::back_inserter(rules));
  return rules;
}

struct Layout {
  int64_t expert_ranks, replicas;
  bool shards;
  int64_t accumulate;
  std::string text() const {
    return fmt::format("{} expert ranks x {} replicas, shards {}, accumulate {}", expert_ranks,
                       replicas, shards, accumulate);
  }
};

Recipe recipe_on(const Layout& layout) {
  const std::vector<std::string> overrides{
      "optimizer={name: sgd, lr: 0.05, momentum: 0.9, weight_decay: 0.1}", "train.clip_norm=0.5",
      fmt::format("parallel.expert_ranks={}", layout.expert_ranks),
      fmt::format("parallel.shard_optimizer={}", layout.shards),
      fmt::format("train.accumulate={}", layout.accumulate)};
  return testing::equality_recipe(overrides);
}

/// The state of all ranks by name; replicas must agree to the bit.
class WorldState {
 public:
  void add(Session& session) {
    for (const StateEntry& entry : list_state(session).tensors) {
      const std::lock_guard lock(mutex_);
      const auto [place, is_new] = tensors_.try_emplace(entry.entry.name, entry.value.clone());
      EXPECT_TRUE(is_new || place->second.equal(entry.value)) << entry.entry.name;
    }
  }
  const NamedTensors& tensors() const { return tensors_; }

 private:
  std::mutex mutex_;
  NamedTensors tensors_;
};

/// After kRuleSteps steps; `interrupted_at`: saved there and resumed by another session.
NamedTensors train(const Layout& layout, int64_t interrupted_at = 0) {
  const Recipe recipe = recipe_on(layout);
  ScratchFolder scratch;
  WorldState state;
  testing::run_grid(layout.expert_ranks, layout.replicas, [&](RankGrid& grid) {
    const auto data = open_split(make_source(recipe), Split::kTrain);
    const auto start = [&] {
      return std::make_unique<Session>(recipe, testing::model_on(recipe, data, grid), data, grid,
                                       masks);
    };
    auto session = start();
    testing::fill_parameters(session->task());
    for (int64_t step = 0; step < kRuleSteps; ++step) {
      if (step > 0 && step == interrupted_at) {
        PosixFileSystem files;
        CheckpointWriter::Options options;
        options.folder = scratch.file("ckpt");
        const SaveOutcome saved =
            CheckpointWriter(options, *grid.world, files)
                .save(*session, {session->steps_done(), session->samples_done(), {}});
        ASSERT_TRUE(saved.ok) << saved.error;
        session = start();
        load_checkpoint(saved.path, *session, *grid.world);
      }
      session->step({});
    }
    state.add(*session);
  });
  return state.tensors();
}

/// Names of tensors that differ by more than 1e-12 of their largest magnitude; masks at all.
std::vector<std::string> differences(const NamedTensors& expected, const NamedTensors& actual,
                                     double tolerance) {
  std::vector<std::string> found;
  for (const auto& [name, value] : expected) {
    const auto other = actual.find(name);
    if (other == actual.end()) {
      found.push_back(name + " is missing");
    } else if (tolerance == 0.0 || value.scalar_type() == torch::kBool) {
      if (!value.equal(other->second)) found.push_back(name);
    } else if (!((value - other->second).abs().max().item<double>() <=
                 tolerance * value.abs().max().item<double>())) {
      found.push_back(name);
    }
  }
  if (expected.size() != actual.size()) found.emplace_back("other names");
  return found;
}

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (const auto& [expert_ranks, replicas] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {2, 1}, {1, 2}, {4, 1}, {2, 2}, {1, 4}}) {
    for (const bool shards : {false, true}) {
      for (const int64_t accumulate : {1, 2}) {
        all.push_back({expert_ranks, replicas, shards, accumulate});
      }
    }
  }
  return all;
}

TEST(StepRuleRanks, AMovingMaskIsTheSameOnEveryRankGrid) {
  for (const int64_t accumulate : {1, 2}) {
    const NamedTensors expected = train({1, 1, false, accumulate});
    for (const Layout& layout : layouts()) {
      if (layout.accumulate != accumulate) continue;
      EXPECT_THAT(differences(expected, train(layout), 1e-12), IsEmpty()) << layout.text();
    }
  }
}

TEST(StepRuleRanks, AMovingMaskResumesBitByBitOnEveryRankGrid) {
  for (const Layout& layout : layouts()) {
    // One step after a move, which is the state of the mask that a restart must not lose.
    EXPECT_THAT(differences(train(layout), train(layout, kPeriod + 1), 0.0), IsEmpty())
        << layout.text();
  }
}

TEST(StepRule, MasksActAndAreSavedByUnit) {
  const NamedTensors state = train({1, 1, false, 1});
  for (const std::string& name :
       {std::string(kDense), name_of_unit(kExperts, 0), name_of_unit(kExperts, 4)}) {
    const torch::Tensor mask = state.at("mask." + name);
    const torch::Tensor start = torch::arange(mask.numel()).remainder(2).eq(0).view(mask.sizes());
    EXPECT_EQ(mask.sum().item<int64_t>(), start.sum().item<int64_t>()) << name;
    EXPECT_FALSE(mask.equal(start)) << name;
    EXPECT_TRUE(state.at(name).masked_select(~mask).eq(0).all().item<bool>()) << name;
    EXPECT_FALSE(state.at(name).masked_select(mask).eq(0).all().item<bool>()) << name;
  }
}

/// Reads and writes the momentum of two parameters, and counts the updates that it saw.
class StateProbe : public StepRule {
 public:
  explicit StateProbe(int64_t& updates) : updates_(updates) {}
  void before_norm(int64_t /*step*/, StepTensors& tensors) override {
    EXPECT_THROW(tensors.whole_gradient(kDense), c10::Error);
    EXPECT_THROW(tensors.gradient("backbone.blocks.7"), c10::Error);
    EXPECT_THROW(tensors.read_state("v", kDense), c10::Error);
  }
  void after_update(int64_t step, StepTensors& tensors) override {
    ++updates_;
    for (const char* name : {kDense, kExperts}) {
      const torch::Tensor read = tensors.read_state("m", name);
      EXPECT_EQ(read.sizes(), tensors.parameter(name).tensor.sizes());
      if (step > 0) {
        continue;
      }
      tensors.write_state("m", name, read + 1);  // it may be zero
      EXPECT_TRUE(tensors.read_state("m", name).equal(read + 1)) << name;
      tensors.write_state("m", name, read);
    }
  }
  void visit_state(StateVisitor& /*visitor*/) override {}

 private:
  int64_t& updates_;
};

TEST(StepRuleRanks, OptimizerStateIsReadAndWrittenWhole) {
  for (const Layout& layout :
       {Layout{2, 2, false, 1}, Layout{2, 2, true, 1}, Layout{1, 4, true, 1}}) {
    const Recipe recipe = recipe_on(layout);
    testing::run_grid(layout.expert_ranks, layout.replicas, [&](RankGrid& grid) {
      const auto data = open_split(make_source(recipe), Split::kTrain);
      int64_t updates = 0;
      const auto make_rules = [&updates](const auto&... built) {
        StepRules rules = make_step_rules(built...);
        rules.push_back(std::make_unique<StateProbe>(updates));
        return rules;
      };
      Session session(recipe, testing::model_on(recipe, data, grid), data, grid, make_rules);
      session.step({});
      session.step({});
      EXPECT_EQ(updates, 2);
    });
  }
}

}  // namespace
}  // namespace shoal
