#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "launch/data/recipe_source.h"
#include "launch/step/session.h"
#include "runtime/base/text.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/model_on.h"
#include "tests/support/ranks.h"

namespace shoal::testing {
namespace {

using ::testing::Contains;
using ::testing::IsSupersetOf;

/// Everything that a state lists, copied, by name.
using SavedState = std::map<std::string, std::variant<torch::Tensor, int64_t, double, std::string>>;

class Saver : public StateVisitor {
 public:
  SavedState saved;

  void tensor(const StateTensor& item) override { saved[item.name] = item.value.clone(); }
  void integer(const std::string& name, int64_t& value) override { saved[name] = value; }
  void real(const std::string& name, double& value) override { saved[name] = value; }
  void text(const std::string& name, std::string& value) override { saved[name] = value; }
};

/// Puts back what is saved; an item that is not saved stays as it is.
class Restorer : public StateVisitor {
 public:
  explicit Restorer(const SavedState& saved) : saved_(saved) {}

  void tensor(const StateTensor& item) override {
    const torch::NoGradGuard no_grad;
    const auto found = saved_.find(item.name);
    if (found != saved_.end()) item.value.copy_(std::get<torch::Tensor>(found->second));
  }
  void integer(const std::string& name, int64_t& value) override { restore(name, value); }
  void real(const std::string& name, double& value) override { restore(name, value); }
  void text(const std::string& name, std::string& value) override { restore(name, value); }

 private:
  const SavedState& saved_;

  template <typename T>
  void restore(const std::string& name, T& value) {
    const auto found = saved_.find(name);
    if (found != saved_.end()) value = std::get<T>(found->second);
  }
};

/// Stacks are saved whole here, under a name with `*`.
bool has_tensor(const SavedState& saved, const std::string& name) {
  return std::ranges::any_of(saved, [&](const auto& item) {
    return item.first == name || matches_glob(name, item.first);
  });
}

SavedState save_state(Session& session) {
  Saver saver;
  session.visit_state(saver);
  return saver.saved;
}

/// What a user sees of a step after the save, to the last bit.
struct Outcome {
  std::vector<double> numbers;  ///< loss, rate and norm unless it is skipped, counts of skips
  std::vector<torch::Tensor> weights;  ///< after it, and their averages

  bool operator==(const Outcome& other) const {
    return numbers == other.numbers &&
           std::equal(weights.begin(), weights.end(), other.weights.begin(), other.weights.end(),
                      [](const torch::Tensor& a, const torch::Tensor& b) { return a.equal(b); });
  }
};

/// A recipe in which every item of the state has work to do.
class ResumeItems : public ::testing::Test {
 protected:
  ResumeItems() : ResumeItems(experts()) {}
  /// `head`: a module with weight and bias that is no part of a momentum encoder.
  explicit ResumeItems(const std::vector<std::string>& model, const std::string& head = "head")
      : head_(head),
        recipe_(load(model)),
        train_data_(open_split(make_source(recipe_), Split::kTrain)) {}

  std::unique_ptr<Session> make_session(RankGrid& grid) const {
    return std::make_unique<Session>(recipe_, model_on(recipe_, train_data_, grid), train_data_,
                                     grid);
  }

  /// A step whose gradients are not finite: a bias of the head is NaN while it lasts.
  StepOutcome skipped_step(Session& session) const {
    torch::Tensor bias;
    for (const Parameter& parameter : session.parameters()) {
      if (parameter.name == head_ + ".bias") bias = parameter.tensor.detach();
    }
    const torch::Tensor before = bias.clone();
    bias.fill_(NAN);
    const StepOutcome outcome = session.step({});
    bias.copy_(before);
    EXPECT_FALSE(outcome.applied);
    return outcome;
  }

  /// Three steps and a skipped one, behind which the state is saved.
  void train_to_the_save(Session& session) const {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(session.step({}).applied);
    skipped_step(session);
  }

  static constexpr int kStepsOn = 3;
  /// Makes a step after the save; the first is skipped, the others are good.
  Outcome step_on(Session& session, int index) const {
    Outcome outcome;
    if (index == 0) {
      skipped_step(session);
    } else {
      const StepOutcome step = session.step({});
      EXPECT_TRUE(step.applied);
      outcome.numbers = {step.loss.item<double>(), step.lr, step.grad_norm};
    }
    for (const int64_t count : {session.nonfinite_in_row(), session.skipped_steps()}) {
      outcome.numbers.push_back(static_cast<double>(count));
    }
    add_weights(session, outcome);
    const auto averages = session.lend_weights();  // evaluations use them, if there are any
    add_weights(session, outcome);
    return outcome;
  }
  std::vector<Outcome> train_on(Session& session) const {
    std::vector<Outcome> steps;
    for (int i = 0; i < kStepsOn; ++i) steps.push_back(step_on(session, i));
    return steps;
  }

  /// Whether some rank sees other steps than expected: up to the first one that differs.
  /// Collective.
  bool trains_on_differently(Session& session, const std::vector<Outcome>& expected,
                             RankGrid& grid) const {
    for (int i = 0; i < kStepsOn; ++i) {
      const bool is_equal = step_on(session, i) == expected[static_cast<size_t>(i)];
      const torch::Tensor all_equal = torch::full({1}, is_equal ? 1 : 0, torch::kLong);
      all_reduce(*grid.world, all_equal, ReduceOp::kMin);
      if (all_equal.item<int64_t>() == 0) return true;
    }
    return false;
  }

  static void add_weights(const Session& session, Outcome& outcome) {
    for (const auto* list : {&session.model().parameters, &session.model().buffers}) {
      for (const Parameter& parameter : *list) {
        outcome.weights.push_back(parameter.tensor.detach().clone());
      }
    }
  }

  /// New processes would do this: a fresh session, what is saved, and on.
  std::unique_ptr<Session> resume(const SavedState& saved, RankGrid& grid) const {
    std::unique_ptr<Session> session = make_session(grid);
    session->fit_to([&](const std::string& name) { return has_tensor(saved, name); });
    Restorer restorer(saved);
    session->visit_state(restorer);
    session->tensors_loaded();
    return session;
  }

  /// All items together give the uninterrupted run.
  void expect_all_are_the_run() const {
    RankGrid grid = self_grid();
    const auto whole = make_session(grid);
    train_to_the_save(*whole);
    const SavedState saved = save_state(*whole);
    const auto resumed = resume(saved, grid);
    EXPECT_EQ(train_on(*resumed), train_on(*whole));
    const SavedState expected = save_state(*whole), actual = save_state(*resumed);
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [name, value] : expected) {
      if (const auto* tensor = std::get_if<torch::Tensor>(&value)) {
        EXPECT_TRUE(std::get<torch::Tensor>(actual.at(name)).equal(*tensor)) << name;
      } else if (const auto* integer = std::get_if<int64_t>(&value)) {
        EXPECT_EQ(std::get<int64_t>(actual.at(name)), *integer) << name;
      } else {
        ADD_FAILURE() << name << ": no session lists reals or texts yet; compare them here";
      }
    }
  }

  /// Collective. No item may be left out of the saved state without any rank's run differing.
  /// `without_gradient`: how names end of parameters whose true gradient is zero; the squares of
  /// what rounding leaves of it are nothing beside AdamW's eps. `remade`: how names end of what
  /// each step makes anew, and only an evaluation before it would miss.
  void expect_each_item_is_missed(RankGrid& grid, const std::string& unit_items,
                                  const std::vector<std::string>& without_gradient = {},
                                  const std::vector<std::string>& remade = {}) const {
    const auto whole = make_session(grid);
    train_to_the_save(*whole);
    const SavedState saved = save_state(*whole);
    const std::vector<Outcome> expected = train_on(*whole);

    std::vector<std::string> unnoticed, items;
    for (const auto& [name, value] : saved) {
      const auto ends_name = [&name](const std::string& end) { return name.ends_with(end); };
      if (name.starts_with("optimizer.v.") && std::ranges::any_of(without_gradient, ends_name)) {
        continue;
      }
      if (std::ranges::any_of(remade, ends_name)) continue;
      SavedState rest = saved;
      rest.erase(name);
      const auto resumed = resume(rest, grid);
      const bool is_missed = trains_on_differently(*resumed, expected, grid);
      // Where each weight counts its steps, the count of all has no effect.
      const bool has_effect =
          name != "optimizer.steps" || !saved.contains("optimizer.t.head.weight");
      if (!is_missed && has_effect) unnoticed.push_back(name);
      items.push_back(name);
    }
    EXPECT_THAT(unnoticed, ::testing::IsEmpty());
    EXPECT_GT(items.size(), 100u);
    EXPECT_THAT(items, IsSupersetOf({std::string("data.cursor"), std::string("optimizer.steps"),
                                     "optimizer.m." + head_ + ".weight",
                                     "optimizer.v." + head_ + ".bias", std::string("trainer.step"),
                                     head_ + ".weight", std::string("trainer.nonfinite_in_row")}));
    EXPECT_THAT(items, Contains(::testing::HasSubstr(unit_items)));
  }

 private:
  /// A Sparse-MLP with capacity, importance drops, noise and a balancing bias.
  static std::vector<std::string> experts() {
    return joined(joined(capped("batch_priority"), noisy()),
                  {"model.sparse.channel_moe.router={name: sigmoid, k: 2, noise: gaussian, "
                   "bias: {rate: 0.05}}"});
  }

  static Recipe load(const std::vector<std::string>& overrides) {
    const std::vector<std::string> all{"optimizer={name: adamw, lr: 1e-2, weight_decay: 0.1}",
                                       "schedule={name: cosine, warmup: 2step}",
                                       "train.duration=12step", "train.accumulate=2",
                                       "train.clip_norm=0.05"};
    return testing::equality_recipe(joined(all, overrides));
  }

  std::string head_;
  Recipe recipe_;
  OpenSplit train_data_;
};

TEST_F(ResumeItems, AllTogetherGiveTheUninterruptedRun) { expect_all_are_the_run(); }

TEST_F(ResumeItems, EachAloneIsMissed) {
  RankGrid grid = self_grid();
  expect_each_item_is_missed(grid, ".selection_bias");
}

class ResumeItemsOfNexus : public ResumeItems {
 protected:
  ResumeItemsOfNexus() : ResumeItems({vit(kBlockNexus)}) {}
};

TEST_F(ResumeItemsOfNexus, EachAloneIsMissed) {
  RankGrid grid = self_grid();
  expect_each_item_is_missed(grid, ".memory.*.");
}

/// A denoiser with averaged weights, whose first good step behind the save mixes softly, its second
/// hard.
class ResumeItemsOfDenoiser : public ResumeItems {
 protected:
  ResumeItemsOfDenoiser()
      : ResumeItems(joined(denoiser("mixing: hard, soft_steps: 6, losses: [{name: switch, weight: "
                                    "0.1}]"),
                           {"train.average={decay: 0.6}", "model.depth=1"})) {}
};

TEST_F(ResumeItemsOfDenoiser, AllTogetherGiveTheUninterruptedRun) { expect_all_are_the_run(); }

TEST_F(ResumeItemsOfDenoiser, EachAloneIsMissed) {
  RankGrid grid = self_grid();
  // A key's bias moves all logits of a query alike.
  expect_each_item_is_missed(grid, "average.backbone.", {".key.bias"});
}

/// Steps of one pass: ResumeItems itself has those of two.
constexpr const char* kOnePass = "train.accumulate=1";

/// Dense layers and experts with masks that are updated before the save and behind it.
class ResumeItemsOfSparse : public ResumeItems {
 protected:
  ResumeItemsOfSparse()
      : ResumeItems({kOnePass, sparse("unstructured", "set"), "train.average={decay: 0.6}"}) {}
};

TEST_F(ResumeItemsOfSparse, AllTogetherGiveTheUninterruptedRun) { expect_all_are_the_run(); }

TEST_F(ResumeItemsOfSparse, EachAloneIsMissed) {
  RankGrid grid = self_grid();
  expect_each_item_is_missed(grid, "sparsity.mask.backbone.");
}

/// Cells that are soft at the save and chosen soon after, of dense layers and experts.
class ResumeItemsOfSoftCells : public ResumeItems {
 protected:
  ResumeItemsOfSoftCells()
      : ResumeItems(
            {kOnePass, sparse_by_choice("diagonal", "permutation: {name: none}", "7step")}) {}
};

TEST_F(ResumeItemsOfSoftCells, AllTogetherGiveTheUninterruptedRun) { expect_all_are_the_run(); }

TEST_F(ResumeItemsOfSoftCells, EachAloneIsMissed) {
  RankGrid grid = self_grid();
  expect_each_item_is_missed(grid, "sparsity.cells.m.backbone.");
}

/// Cells that were chosen before the save.
class ResumeItemsOfChosenCells : public ResumeItems {
 protected:
  ResumeItemsOfChosenCells()
      : ResumeItems(
            {kOnePass, sparse_by_choice("diagonal", "permutation: {name: none}", "2step")}) {}
};

TEST_F(ResumeItemsOfChosenCells, AllTogetherGiveTheUninterruptedRun) { expect_all_are_the_run(); }

TEST_F(ResumeItemsOfChosenCells, EachAloneIsMissed) {
  RankGrid grid = self_grid();
  expect_each_item_is_missed(grid, "sparsity.mask.backbone.");
}

/// Masks grown by topology, every one of which changes in its first update and then stays; steps of
/// each weight.
class ResumeItemsOfCht : public ResumeItems {
 protected:
  ResumeItemsOfCht()
      : ResumeItems({kOnePass,
                     sparse("unstructured", "cht, stop_overlap: 0, exclude_dropped: true"),
                     "optimizer={name: adamw, lr: 1e-2, weight_decay: 0.1, entry_steps: true}"}) {}
};

TEST_F(ResumeItemsOfCht, AllTogetherGiveTheUninterruptedRun) { expect_all_are_the_run(); }

TEST_F(ResumeItemsOfCht, EachAloneIsMissed) {
  RankGrid grid = self_grid();
  expect_each_item_is_missed(grid, "sparsity.stopped.backbone.");
}

/// Masks that are drawn, and go on changing.
class ResumeItemsOfChtS : public ResumeItems {
 protected:
  ResumeItemsOfChtS()
      : ResumeItems({kOnePass, sparse("unstructured", "cht_s, chain_removal: true"),
                     "optimizer={name: adamw, lr: 1e-2, weight_decay: 0.1, entry_steps: true}"}) {}
};

TEST_F(ResumeItemsOfChtS, AllTogetherGiveTheUninterruptedRun) { expect_all_are_the_run(); }

TEST_F(ResumeItemsOfChtS, EachAloneIsMissed) {
  RankGrid grid = self_grid();
  expect_each_item_is_missed(grid, "optimizer.t.backbone.");
}

/// Permutations that are soft at the save and hard soon after, of dense layers and experts.
class ResumeItemsOfSoftPermutations : public ResumeItems {
 protected:
  ResumeItemsOfSoftPermutations()
      : ResumeItems(
            {kOnePass,
             sparse("unstructured", "set",
                    "density: 0.5, permutation: {name: learned, lr: 0.05, until: 7step}")}) {}
};

TEST_F(ResumeItemsOfSoftPermutations, AllTogetherGiveTheUninterruptedRun) {
  expect_all_are_the_run();
}

TEST_F(ResumeItemsOfSoftPermutations, EachAloneIsMissed) {
  RankGrid grid = self_grid();
  expect_each_item_is_missed(grid, "sparsity.soft.m.backbone.");
}

/// Permutations that are hard at the save.
class ResumeItemsOfHardPermutations : public ResumeItems {
 protected:
  ResumeItemsOfHardPermutations()
      : ResumeItems(
            {kOnePass,
             sparse("unstructured", "set",
                    "density: 0.5, permutation: {name: learned, lr: 0.05, until: 2step}")}) {}
};

TEST_F(ResumeItemsOfHardPermutations, AllTogetherGiveTheUninterruptedRun) {
  expect_all_are_the_run();
}

TEST_F(ResumeItemsOfHardPermutations, EachAloneIsMissed) {
  RankGrid grid = self_grid();
  expect_each_item_is_missed(grid, "sparsity.index.backbone.");
}

/// Permutations of switches that are soft at the save and hard soon after.
std::vector<std::string> switches(const std::string& permutation) {
  return {kOnePass,
          sparse("unstructured", "set",
                 "density: 0.5, layers: [channel_mlp.fc1, moe_c.experts], permutation: {name: " +
                     permutation + ", lr: 0.2, until: 7step}"),
          kSmallExperts};
}

class ResumeItemsOfKaleidoscopes : public ResumeItems {
 protected:
  ResumeItemsOfKaleidoscopes() : ResumeItems(switches("kaleidoscope")) {}
};

TEST_F(ResumeItemsOfKaleidoscopes, AllTogetherGiveTheUninterruptedRun) { expect_all_are_the_run(); }

TEST_F(ResumeItemsOfKaleidoscopes, EachAloneIsMissed) {
  RankGrid grid = self_grid();
  expect_each_item_is_missed(grid, "sparsity.soft.m.backbone.");
}

class ResumeItemsOfBenesNetworks : public ResumeItems {
 protected:
  ResumeItemsOfBenesNetworks() : ResumeItems(switches("benes")) {}
};

TEST_F(ResumeItemsOfBenesNetworks, AllTogetherGiveTheUninterruptedRun) { expect_all_are_the_run(); }

TEST_F(ResumeItemsOfBenesNetworks, EachAloneIsMissed) {
  RankGrid grid = self_grid();
  expect_each_item_is_missed(grid, "sparsity.soft.v.backbone.");
}

/// Sparse kernels, with masks that are updated behind the save.
class ResumeItemsOfSparseKernels : public ResumeItems {
 protected:
  ResumeItemsOfSparseKernels() : ResumeItems({sparse_by_kernels("diagonal", "set")}) {}
};

TEST_F(ResumeItemsOfSparseKernels, AllTogetherGiveTheUninterruptedRun) { expect_all_are_the_run(); }

/// A pretraining with a momentum encoder, experts and a balancing bias.
class ResumeItemsOfMoco : public ResumeItems {
 protected:
  ResumeItemsOfMoco()
      : ResumeItems(moco({"train.accumulate=1",
                          "model.sparse.channel_moe.router={name: sigmoid, "
                          "k: 2, noise: gaussian, bias: {rate: 0.05}}"}),
                    "predictor.norm1") {}
};

TEST_F(ResumeItemsOfMoco, AllTogetherGiveTheUninterruptedRun) { expect_all_are_the_run(); }

TEST_F(ResumeItemsOfMoco, EachAloneIsMissed) {
  RankGrid grid = self_grid();
  // Norms of the projector take away what these add to all samples.
  expect_each_item_is_missed(grid, "key_backbone.", {"backbone.norm.bias", "token_mlp.fc2.bias"},
                             {"key_backbone.blocks.1.moe_c.router.selection_bias"});
}

using ResumeItemsRanks = ResumeItems;

TEST_F(ResumeItemsRanks, EachAloneIsMissedBySomeRank) {
  run_grid(2, 1, [this](RankGrid& grid) { expect_each_item_is_missed(grid, ".experts.*."); });
}

}  // namespace
}  // namespace shoal::testing
