#include "sparse/training/prune_grow.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/gradients/gradient_sync.h"
#include "parallel/gradients/parameter_group.h"
#include "runtime/optim/sgd.h"
#include "sparse/permutations/doubly_stochastic.h"
#include "tests/sparse/grow_rules/rule_fixture.h"
#include "tests/sparse/patterns/pattern_fixture.h"
#include "tests/support/ranks.h"

// h hidden neurons
namespace shoal {
namespace {

using testing::make_pattern;
using testing::make_rule;
using testing::mask_of;
using testing::uniform_numbers;

/// Sets the state that it finds by name, of the same shape.
struct Setter : StateVisitor {
  std::map<std::string, torch::Tensor> values;
  explicit Setter(std::map<std::string, torch::Tensor> given) : values(std::move(given)) {}
  void tensor(const StateTensor& entry) override {
    const auto found = values.find(entry.name);
    if (found != values.end()) entry.value.copy_(found->second);
  }
  void integer(const std::string&, int64_t&) override {}
  void real(const std::string&, double&) override {}
  void text(const std::string&, std::string&) override {}
};

/// An MLP of 6 inputs, 8 hidden neurons and 5 outputs, trained sparse by a rule in steps of random
/// weights; every step is an update.
class Mlp {
 public:
  explicit Mlp(const std::string& rule, double density = 0.4)
      : parameters_{{"mlp.fc1.weight", torch::zeros({8, 6}).requires_grad_(), 0, {}, {}},
                    {"mlp.fc2.weight", torch::zeros({5, 8}).requires_grad_(), 0, {}, {}}},
        sync_(group_parameters(parameters_, grid_), *grid_.world),
        optimizer_(with_momentum(), parameters_),
        tensors_(sync_, nullptr, optimizer_) {
    std::vector<SparseLayer> layers;
    for (const Parameter& parameter : parameters_) {
      const torch::Tensor& weight = parameter.tensor;
      weight.mutable_grad() = torch::zeros_like(weight.detach());
      layers.push_back(
          {parameter, false, density,
           make_pattern("{name: unstructured}", weight.size(0), weight.size(1), density)});
    }
    masks_ = std::make_unique<SparseMasks>(layers);
    prune_grow_ = std::make_unique<PruneGrow>(*masks_, make_rule(rule), /*seed=*/1, false);
    prune_grow_->remove_chains_of({LayerChain{{{0, false}, {1, true}}}});
  }

  /// Both masks are these, and the weights those.
  void set(const torch::Tensor& fc1, const torch::Tensor& fc2) {
    Setter setter({{"sparsity.mask.mlp.fc1.weight", fc1}, {"sparsity.mask.mlp.fc2.weight", fc2}});
    prune_grow_->visit_state(setter);
  }
  void set_weights(uint64_t number) {
    for (const Parameter& parameter : parameters_) {
      const torch::Tensor& weight = parameter.tensor;
      weight.detach().copy_(uniform_numbers(weight.numel(), ++number).view(weight.sizes()) - 0.5);
    }
    prune_grow_->tensors_loaded();
  }
  void update(int64_t step) { prune_grow_->after_update(step, tensors_); }

  /// All moments are 1.
  void fill_moments() {
    for (const Parameter& parameter : parameters_) {
      tensors_.write_state(kMoment, parameter.name, torch::ones_like(parameter.tensor.detach()));
    }
  }
  torch::Tensor moment(size_t layer) const {
    return tensors_.read_state(kMoment, parameters_[layer].name);
  }

  PruneGrow& prune_grow() { return *prune_grow_; }
  const torch::Tensor& mask(size_t layer) const { return masks_->mask(layer); }
  torch::Tensor weight(size_t layer) const { return parameters_[layer].tensor.detach(); }

 private:
  static constexpr const char* kMoment = "m";
  static Sgd::Options with_momentum() {
    Sgd::Options options;
    options.momentum = 0.9;
    return options;
  }

  RankGrid grid_ = testing::self_grid();
  std::vector<Parameter> parameters_;
  GradientSync sync_;
  Sgd optimizer_;
  StepTensors tensors_;
  std::unique_ptr<SparseMasks> masks_;
  std::unique_ptr<PruneGrow> prune_grow_;
};

class TopologicalUpdates : public ::testing::TestWithParam<std::string> {};

TEST_P(TopologicalUpdates, KeepTheNumberOfWeightsOverAThousandOfThem) {
  Mlp mlp("{name: " + GetParam() + ", every: 1step, until: 1000step, decay: constant}");
  int64_t changed = 0;
  for (int64_t step = 1; step < 1000; ++step) {
    mlp.set_weights(static_cast<uint64_t>(2 * step));
    const torch::Tensor before = mlp.mask(0).clone();
    mlp.update(step);
    ASSERT_EQ(mlp.mask(0).sum().item<int64_t>(), 19);  // floor(.4 · 48)
    ASSERT_EQ(mlp.mask(1).sum().item<int64_t>(), 16);
    for (const size_t layer : {0, 1}) {
      ASSERT_FALSE((mlp.weight(layer) * ~mlp.mask(layer)).any().item<bool>()) << step;
    }
    changed += mlp.mask(0).equal(before) ? 0 : 1;
  }
  EXPECT_GT(changed, 0);
}

INSTANTIATE_TEST_SUITE_P(Rules, TopologicalUpdates,
                         ::testing::Values("cht, stop_overlap: never",
                                           "cht, stop_overlap: never, score: ch2_l3n",
                                           "cht, stop_overlap: never, exclude_dropped: true",
                                           "cht_s", "cht_s, chain_removal: true",
                                           "cht_s, selection: top, score: ch2_l3p"));

/// A weight that grows has no moments, unless it was dropped in the same update.
TEST(PruneGrow, WeightsThatStayOrRegrowAtOnceKeepTheirMoments) {
  Mlp mlp("{name: set, every: 1step, until: 200step, decay: constant, fraction: 0.9}");
  int64_t grown = 0;
  for (int64_t step = 1; step < 100; ++step) {
    mlp.set_weights(static_cast<uint64_t>(2 * step));
    mlp.fill_moments();
    const torch::Tensor before = mlp.mask(0).clone();
    mlp.update(step);
    const torch::Tensor has_moment = mlp.moment(0) != 0;
    // What was off before had no gradient, so that its moment counts for nothing.
    ASSERT_TRUE((has_moment & mlp.mask(0)).equal(before & mlp.mask(0))) << step;
    ASSERT_FALSE((has_moment & ~mlp.mask(0)).any().item<bool>()) << step;
    grown += (mlp.mask(0) & ~before).sum().item<int64_t>();
  }
  EXPECT_GT(grown, 100);
}

/// Masks in which neuron 0 has one link in and one out, neuron 1 none out, neuron 2 none in; the
/// others have links on both sides.
std::pair<torch::Tensor, torch::Tensor> masks_with_loose_neurons() {
  return {mask_of({{1, 0, 0, 0, 0, 0},
                   {1, 1, 0, 0, 0, 0},
                   {0, 0, 0, 0, 0, 0},
                   {0, 1, 1, 0, 0, 0},
                   {0, 0, 1, 1, 0, 0},
                   {0, 0, 0, 1, 1, 0},
                   {0, 0, 0, 0, 1, 1},
                   {1, 0, 0, 0, 0, 1}}),
          mask_of({{1, 0, 1, 1, 0, 0, 0, 0},
                   {0, 0, 0, 1, 1, 0, 0, 0},
                   {0, 0, 0, 0, 1, 1, 0, 0},
                   {0, 0, 0, 0, 0, 1, 1, 0},
                   {0, 0, 0, 0, 0, 0, 1, 1}})};
}

// 13 links of fc1 and 11 of fc2: one each is dropped (.1), the smallest. Then neuron 1's two links
// of fc1 and neuron 2's one of fc2 go, and as many grow where paths lead, not at these neurons.
TEST(PruneGrow, RemovesChainsAfterTheDropAndGrowsAsMany) {
  Mlp mlp("{name: cht, every: 1step, fraction: 0.1, stop_overlap: never}");
  const auto [fc1, fc2] = masks_with_loose_neurons();
  mlp.set(fc1, fc2);
  mlp.weight(0).fill_(1).mul_(fc1);
  mlp.weight(1).fill_(1).mul_(fc2);
  mlp.weight(0)[7][5] = 0.5;
  mlp.weight(1)[4][6] = 0.5;
  mlp.update(1);
  EXPECT_EQ(mlp.mask(0).sum().item<int64_t>(), 13);
  EXPECT_EQ(mlp.mask(1).sum().item<int64_t>(), 11);
  EXPECT_FALSE(mlp.mask(0)[1].any().item<bool>());
  EXPECT_FALSE(mlp.mask(0)[2].any().item<bool>());
  EXPECT_FALSE(mlp.mask(1).select(1, 1).any().item<bool>());
  EXPECT_FALSE(mlp.mask(1).select(1, 2).any().item<bool>());
  // What grew starts from zero, but for a link that was dropped in this update.
  const torch::Tensor grown = mlp.mask(0) & ~fc1;
  EXPECT_FALSE((mlp.weight(0) * grown).any().item<bool>());
}

TEST(PruneGrow, LeavesChainsWhereTheRuleDoesNotRemoveThem) {
  Mlp mlp("{name: cht, every: 1step, fraction: 0.1, stop_overlap: never, chain_removal: false}");
  const auto [fc1, fc2] = masks_with_loose_neurons();
  mlp.set(fc1, fc2);
  mlp.weight(0).fill_(1).mul_(fc1);
  mlp.weight(1).fill_(1).mul_(fc2);
  mlp.weight(0)[7][5] = 0.5;
  mlp.weight(1)[4][6] = 0.5;
  mlp.update(1);
  EXPECT_TRUE(torch::equal(mlp.mask(0)[1] & fc1[1], fc1[1]));
  EXPECT_TRUE(mlp.mask(1)[0][2].item<bool>());
}

TEST(PruneGrow, LeavesChainsWhileAPermutationWithinThemIsSoft) {
  Mlp mlp("{name: cht, every: 1step, fraction: 0.1, stop_overlap: never}");
  const auto [fc1, fc2] = masks_with_loose_neurons();
  auto order = std::make_shared<Permutation>(Permutation::Place{
      mlp.prune_grow().masks().layers()[1].parameter, false, PermutationAxis::kInputs});
  order->soften(/*groups=*/1, /*mix=*/0.5, /*seed=*/1, std::make_shared<DoublyStochastic>());
  mlp.prune_grow().remove_chains_of({LayerChain{{{0, false}, {1, true, order}}}});
  mlp.set(fc1, fc2);
  mlp.weight(0).fill_(1).mul_(fc1);
  mlp.weight(1).fill_(1).mul_(fc2);
  mlp.update(1);
  EXPECT_TRUE(mlp.mask(1)[0][2].item<bool>());
  // The same once it is hard, as the identity.
  order->set_index(torch::arange(8).view({1, 8}));
  mlp.set(fc1, fc2);
  mlp.update(2);
  EXPECT_FALSE(mlp.mask(1)[0][2].item<bool>());
}

// Equal weights: the drop keeps lower cells. Where no path leads anywhere, lower cells grow.
TEST(PruneGrow, TiesAreTakenInTheOrderOfTheCells) {
  Mlp mlp("{name: cht, every: 1step, fraction: 0.5, chain_removal: false}", /*density=*/0.1);
  torch::Tensor fc1 = torch::zeros({8, 6}, torch::kBool), fc2 = torch::zeros({5, 8}, torch::kBool);
  for (const int64_t i : {0, 1, 2, 3}) fc1[i + 4][i + 1] = fc2[i][i] = true;
  mlp.set(fc1, fc2);
  mlp.weight(0).fill_(1).mul_(fc1);
  mlp.weight(1).fill_(1).mul_(fc2);
  mlp.update(1);
  torch::Tensor expected1 = torch::zeros({8, 6}, torch::kBool);
  expected1[4][1] = expected1[5][2] = expected1[0][0] = expected1[0][1] = true;
  EXPECT_TRUE(torch::equal(mlp.mask(0), expected1));
  torch::Tensor expected2 = torch::zeros({5, 8}, torch::kBool);
  expected2[0][0] = expected2[1][1] = expected2[0][1] = expected2[0][2] = true;
  // With row 0 and 1 in columns 0 and 1 there is no path of three links.
  EXPECT_TRUE(torch::equal(mlp.mask(1), expected2));
}

TEST(PruneGrow, AnUpdateOfNothingLeavesLooseNeuronsToo) {
  Mlp mlp("{name: cht, every: 1step, fraction: 0}");
  const auto [fc1, fc2] = masks_with_loose_neurons();
  mlp.set(fc1, fc2);
  mlp.set_weights(1);
  mlp.update(1);
  EXPECT_TRUE(torch::equal(mlp.mask(0), fc1));
  EXPECT_TRUE(torch::equal(mlp.mask(1), fc2));
}

/// Whether masks change in 20 updates that come after a first one.
bool changes_after_the_first_update(Mlp& mlp) {
  mlp.set_weights(1);
  mlp.update(1);
  const torch::Tensor after_first = mlp.mask(0).clone();
  for (int64_t step = 2; step < 22; ++step) {
    mlp.set_weights(static_cast<uint64_t>(10 * step));
    mlp.update(step);
    if (!mlp.mask(0).equal(after_first)) return true;
  }
  return false;
}

TEST(PruneGrow, AMaskStaysOnceItsShareOfRegrownLinksIsReached) {
  Mlp at_once("{name: cht, every: 1step, stop_overlap: 0}");
  EXPECT_FALSE(changes_after_the_first_update(at_once));
  Mlp never("{name: cht, every: 1step, stop_overlap: never}");
  EXPECT_TRUE(changes_after_the_first_update(never));
  // Nothing that was dropped grows again, so that the share is 0.
  Mlp apart("{name: cht, every: 1step, stop_overlap: 0.01, exclude_dropped: true}");
  EXPECT_TRUE(changes_after_the_first_update(apart));
}

// Of a mask without missing links those that are dropped grow again: the share is 1.
TEST(PruneGrow, StopsTheMatrixWhoseLinksGrowAgain) {
  const torch::Tensor full = torch::ones({8, 6}, torch::kBool);
  const auto [sparse, fc2] = masks_with_loose_neurons();
  for (const char* overlap : {"1", "never"}) {
    Mlp mlp(std::string("{name: cht, every: 1step, chain_removal: false, stop_overlap: ") +
            overlap + "}");
    mlp.set(full, fc2);
    mlp.set_weights(1);
    mlp.update(1);
    EXPECT_TRUE(torch::equal(mlp.mask(0), full));
    mlp.set(sparse, fc2);
    mlp.set_weights(1);
    mlp.update(2);
    EXPECT_EQ(torch::equal(mlp.mask(0), sparse), std::string(overlap) == "1") << overlap;
  }
}

// One matrix has stopped, the other loses the links of its loose neurons.
TEST(PruneGrow, ChainsAreNotRemovedFromAMatrixThatHasStopped) {
  Mlp mlp("{name: cht, every: 1step, fraction: 0.1}");
  const auto [fc1, fc2] = masks_with_loose_neurons();
  mlp.set(fc1, fc2);
  Setter stops({{"sparsity.stopped.mlp.fc1.weight", torch::ones({1}, torch::kBool)}});
  mlp.prune_grow().visit_state(stops);
  mlp.set_weights(1);
  mlp.update(1);
  EXPECT_TRUE(torch::equal(mlp.mask(0), fc1));
  EXPECT_FALSE(mlp.mask(1).select(1, 2).any().item<bool>());
}

}  // namespace
}  // namespace shoal
