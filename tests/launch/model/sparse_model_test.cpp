#include "sparse/sparse_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "launch/check/check_recipe.h"
#include "tests/support/config_error.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/session_in_training.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::joined;
using testing::loading_error;
using testing::mistakes_of;
using ::testing::Not;
using testing::save;
using testing::SessionInTraining;
using Overrides = std::vector<std::string>;

std::vector<SparseLayerInfo> sparse_layers(const Overrides& overrides) {
  return check_recipe({"test", overrides, nullptr, testing::kEqualityRecipe},
                      config::UnsetVariable::kKeep, 1)
      .counts.sparse;
}

std::vector<std::string> names(const Overrides& overrides) {
  std::vector<std::string> result;
  for (const SparseLayerInfo& layer : sparse_layers(overrides)) result.push_back(layer.name);
  return result;
}

const std::string kTinyVit = testing::vit();

TEST(SparseLayers, AreThoseOfThePaperUnlessNamed) {
  EXPECT_THAT(names({kTinyVit, "sparsity={density: 0.5}"}),
              ElementsAre("backbone.stem.weight", "backbone.blocks.0.attention.proj.weight",
                          "backbone.blocks.0.mlp.fc1.weight", "backbone.blocks.0.mlp.fc2.weight",
                          "backbone.blocks.1.attention.proj.weight",
                          "backbone.blocks.1.mlp.fc1.weight", "backbone.blocks.1.mlp.fc2.weight"));
  EXPECT_THAT(
      names({kTinyVit, "sparsity={density: 0.5, layers: ['blocks.1.*.fc2', qkv]}"}),
      ElementsAre("backbone.blocks.0.attention.qkv.weight",
                  "backbone.blocks.1.attention.qkv.weight", "backbone.blocks.1.mlp.fc2.weight"));
  EXPECT_THAT(names({"sparsity={density: 0.5}"}),
              Contains("backbone.blocks.1.moe_c.experts.*.fc1.weight"));
}

TEST(SparseLayers, HaveTheirDensity) {
  const std::vector<SparseLayerInfo> layers = sparse_layers(
      {kTinyVit,
       "sparsity={density: 0.25, layers: [mlp], densities: [{match: blocks.0.mlp.fc1, "
       "density: 0.5}, {match: blocks.1.mlp.fc1, density: 1}]}"});
  ASSERT_EQ(layers.size(), 3u);  // that of density 1 is dense
  EXPECT_EQ(layers[0].rows, 12);
  EXPECT_EQ(layers[0].columns, 8);
  EXPECT_EQ(layers[0].weights, 48);
  EXPECT_EQ(layers[1].weights, 24);
}

TEST(SparseLayers, CountAllExpertsForErk) {
  const Overrides erk{"sparsity={density: 0.3, distribution: erk, layers: [moe_c.experts]}"};
  const std::vector<SparseLayerInfo> layers = sparse_layers(erk);
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].copies, 5);
  EXPECT_EQ(layers[0].rows, 6);  // outputs, of a weight that is stored as [inputs, outputs]
  EXPECT_EQ(layers[0].columns, 4);
}

TEST(SparseLayers, RefuseWhatDoesNotFitByName) {
  const auto mistakes = [](const std::string& sparsity, const Overrides& more = {}) {
    return mistakes_of([&] {
      sparse_layers(joined({kTinyVit, "sparsity={" + sparsity + "}"}, more));
    });
  };
  EXPECT_THAT(mistakes("density: 0.5, layers: [mpl]"),
              ElementsAre(HasSubstr("sparsity.layers[0]: no layer that can be sparse is named "
                                    "'mpl'; there are attention.proj, ")));
  // Embeddings, norms and heads stay dense.
  for (const char* name : {"positions", "norm", "head"}) {
    EXPECT_THAT(mistakes(std::string("density: 0.5, layers: [") + name + "]"),
                ElementsAre(AllOf(HasSubstr(std::string("sparsity.layers[0]: '") + name + "' is "),
                                  HasSubstr(", which stays dense"))))
        << name;
  }
  EXPECT_THAT(
      mistakes("density: 0.5, densities: [{match: qkv, density: 0.2}]"),
      ElementsAre(HasSubstr("sparsity.densities[0].match: sparsity.layers leaves 'qkv' out")));
  EXPECT_THAT(mistakes("density: 0.001, layers: [blocks.0.mlp.fc1]"),
              ElementsAre(HasSubstr("blocks.0.mlp.fc1: a density of 0.001 leaves none")));
  EXPECT_THAT(
      mistakes("density: 0.5, layers: [mlp.fc1], pattern: {name: block, size: 8}"),
      ElementsAre(HasSubstr("blocks.0.mlp.fc1: blocks of 8 x 8 do not divide 12 x 8 weights; "
                            "sizes that do: 1, 2, 4")));
  EXPECT_THAT(mistakes("density: 0.5, layers: [mlp]",
                       {"optimizer.rules=[{match: '*.mlp.fc1.weight', freeze: true}]"}),
              ElementsAre(HasSubstr("blocks.0.mlp.fc1 is frozen by optimizer.rules"),
                          HasSubstr("blocks.1.mlp.fc1 is frozen by optimizer.rules")));
  EXPECT_THAT(mistakes("density: 0.5, rule: {name: rigl, every: 1000tok}"),
              Contains(HasSubstr("sparsity.rule: ")));
  EXPECT_THAT(mistakes("density: 0"), Contains(HasSubstr("sparsity.density")));
  EXPECT_THAT(mistakes("density: 0.5, layers: [mlp.fc1], permutation: {name: learned, groups: 3}"),
              Contains(HasSubstr("blocks.0.mlp.fc1.weight: 3 groups do not divide 8 inputs into "
                                 "groups of at least 2; numbers that do: 1, 2, 4")));
  EXPECT_THAT(
      mistakes("density: 0.5, layers: [mlp.fc2], permutation: {name: benes}"),
      Contains(HasSubstr("blocks.0.mlp.fc2.weight: 12 inputs in 1 group: benes needs groups "
                         "whose size is a power of 2, at least 2; set groups: 3 (3 groups "
                         "of 4)")));
  EXPECT_THAT(
      mistakes("density: 0.5, layers: [mlp.fc2], permutation: {name: kaleidoscope, groups: 6}"),
      Contains(HasSubstr("12 inputs in 6 groups: kaleidoscope needs groups whose size is a power "
                         "of 2, at least 4; set groups: 3 (3 groups of 4)")));
  EXPECT_THAT(mistakes("density: 1, permutation: {name: random}"),
              ElementsAre(HasSubstr("sparsity.permutation: every layer has a density of 1")));
  EXPECT_THAT(mistakes("density: 0.5, permutation: {name: learned, until: 1000tok}"),
              Contains(HasSubstr("sparsity.permutation: ")));
  EXPECT_THAT(
      mistakes("density: 0.1, layers: [mlp.fc1], rule: {name: mest, extra: 0.2}"),
      Contains(HasSubstr("blocks.0.mlp.fc1.weight: an update would drop all of its 9 cells")));
  EXPECT_THAT(mistakes("density: 0.5, layers: [mlp.fc1], pattern: {name: n_m}, rule: {name: mest, "
                       "mode: em_s}"),
              Contains(HasSubstr("masks of this pattern cannot have more weights than asked for")));
  EXPECT_THAT(mistakes("density: 0.5, layers: [mlp.fc1], pattern: {name: n_m}, rule: {name: cht}"),
              Contains(HasSubstr("blocks.0.mlp.fc1.weight: cht and cht_s grow single weights")));
  EXPECT_THAT(mistakes("density: 0.5, rule: {name: mest, mode: em_s, until: 100%}"),
              Contains(HasSubstr("before the end of the training")));
}

TEST(SparseLayers, ThatSparseKernelsCannotRunAreRefusedByName) {
  const auto mistakes = [](const std::string& sparsity, const Overrides& more = {}) {
    return mistakes_of([&] {
      sparse_layers(joined(
          {kTinyVit, "sparsity={density: 0.5, layers: [blocks.0.mlp.fc1], " + sparsity + "}"},
          more));
    });
  };
  EXPECT_THAT(mistakes("execution: sparse, pattern: {name: n_m}"),
              ElementsAre(HasSubstr("sparse kernels cannot run backbone.blocks.0.mlp.fc1.weight: "
                                    "there are none for the pattern n_m")));
  EXPECT_THAT(mistakes("execution: sparse", {"train.precision=bfloat16"}),
              ElementsAre(HasSubstr("they do not compute in bfloat16")));
  EXPECT_THAT(mistakes_of([] {
                sparse_layers(
                    {"sparsity={density: 0.5, layers: [moe_c.experts.*.fc1], execution: "
                     "sparse}"});
              }),
              ElementsAre(HasSubstr("it is a stack of experts")));
  EXPECT_TRUE(mistakes("execution: auto, pattern: {name: n_m}").empty());
  EXPECT_TRUE(mistakes("execution: sparse").empty());
}

TEST(SparseLayers, RoutersStayDense) {
  const std::string vit =
      testing::vit("moe: {router: {name: mlp}, experts: {count: 4, hidden: 6}}");
  EXPECT_THAT(mistakes_of([&] {
                sparse_layers({vit, "sparsity={density: 0.5, layers: [router.fc1]}"});
              }),
              ElementsAre(HasSubstr("moe.router.fc1.weight, which stays dense")));
}

TEST(SparseLayers, CountTheExpertsOfNexusAlone) {
  const std::vector<SparseLayerInfo> layers = sparse_layers(
      {testing::vit(testing::kBlockNexus), "sparsity={density: 0.5, layers: [experts]}"});
  ASSERT_FALSE(layers.empty());
  for (const SparseLayerInfo& layer : layers) EXPECT_EQ(layer.copies, 3) << layer.name;
}

TEST(SparseLayers, TellTheMemoryOfSoftPermutations) {
  const auto bytes = [](const std::string& groups) {
    return sparse_layers({kTinyVit,
                          "sparsity={density: 0.5, layers: [mlp.fc2], permutation: {name: "
                          "learned, groups: " +
                              groups + "}}"})[0]
        .soft_bytes;
  };
  EXPECT_EQ(bytes("1"), 4 * 12 * 12 * 8);  // with gradient and Adam's two, in float64
  EXPECT_EQ(bytes("3"), 4 * 12 * 12 * 8 / 3);
}

TEST(SparseLayers, TellTheMemoryOfSwitches) {
  const auto bytes = [](const std::string& permutation) {
    return sparse_layers(
               {kTinyVit, "sparsity={density: 0.5, layers: [mlp.fc2], permutation: {name: " +
                              permutation + "}}"})[0]
        .soft_bytes;
  };
  // 12 inputs: three groups of 4, of one level of 3 switches or three stages of 2.
  EXPECT_EQ(bytes("kaleidoscope, groups: 3"), 4 * 3 * 3 * 8);
  EXPECT_EQ(bytes("benes, groups: 3"), 4 * 3 * 6 * 8);
}

/// Weights outside the masks, their optimizer state, averages and those of the masks that changed.
void expect_sparse(Session& session) {
  const SparseMasks& sparse = session.model().sparse->masks();
  for (size_t l = 0; l < sparse.layers().size(); ++l) {
    const SparseLayer& layer = sparse.layers()[l];
    const torch::Tensor off = ~sparse.mask(l), weight = layer.parameter.tensor.detach();
    EXPECT_FALSE((weight * off).any().item<bool>()) << layer.parameter.name;
    for (const char* kind : {"m", "v"}) {
      const torch::Tensor state = session.optimizer().state_of(kind, layer.parameter.name)[0];
      EXPECT_FALSE((state * off).any().item<bool>()) << kind << " of " << layer.parameter.name;
    }
    const torch::Tensor& average =
        testing::find_rule<WeightAverage>(session.rules())->average_of(layer.parameter.name);
    EXPECT_FALSE((average * off).any().item<bool>()) << layer.parameter.name;
  }
}

const Overrides kRigl{"optimizer={name: adamw, lr: 1e-2, weight_decay: 0.1}",
                      "train.average={decay: 0.6}", testing::sparse("unstructured")};

TEST(SparseTraining, KeepsWeightsStateAndAveragesWithinTheMasks) {
  SessionInTraining run(kRigl);
  std::vector<torch::Tensor> before;
  const SparseMasks& sparse = run.session.model().sparse->masks();
  for (size_t l = 0; l < sparse.layers().size(); ++l) before.push_back(sparse.mask(l).clone());
  for (int64_t step = 0; step < 5; ++step) {
    run.session.step({});
    expect_sparse(run.session);
  }
  for (size_t l = 0; l < sparse.layers().size(); ++l) {
    EXPECT_EQ(sparse.mask(l).sum().item<int64_t>(), before[l].sum().item<int64_t>());
    EXPECT_FALSE(sparse.mask(l).equal(before[l])) << sparse.layers()[l].parameter.name;
  }
}

// The third step updates masks in place of weights: what stays keeps its value.
TEST(SparseTraining, AnUpdateOfRigLTakesThePlaceOfTheStep) {
  SessionInTraining run(kRigl);
  run.session.step({});
  run.session.step({});
  const SparseMasks& sparse = run.session.model().sparse->masks();
  std::vector<torch::Tensor> weights, masks;
  for (size_t l = 0; l < sparse.layers().size(); ++l) {
    weights.push_back(sparse.layers()[l].parameter.tensor.detach().clone());
    masks.push_back(sparse.mask(l).clone());
  }
  run.session.step({});
  for (size_t l = 0; l < sparse.layers().size(); ++l) {
    const torch::Tensor stays = masks[l] & sparse.mask(l);
    EXPECT_TRUE(torch::equal(sparse.layers()[l].parameter.tensor.detach(), weights[l] * stays));
  }
}

// Every expert has a mask of its own, with one weight of each of its outputs.
TEST(SparseTraining, ExpertsHaveMasksOfTheirOwn) {
  SessionInTraining run(
      {"sparsity={density: 0.25, layers: [moe_c.experts.*.fc1], pattern: "
       "{name: constant_fan_in}, rule: {name: static}}"});
  const torch::Tensor& mask = run.session.model().sparse->masks().mask(0);
  EXPECT_EQ(mask.sizes(), (at::IntArrayRef{5, 4, 6}));
  EXPECT_TRUE(torch::equal(mask.sum(1), torch::full({5, 6}, 1)));
  EXPECT_FALSE(mask[0].equal(mask[1]));
}

// Outputs keep their variance: rows of weights are scaled by sqrt(4 / 1).
TEST(SparseTraining, FirstWeightsAreRescaled) {
  const std::string keys =
      "sparsity={density: 0.25, layers: [moe_c.experts.*.fc1], pattern: {name: constant_fan_in}, "
      "rule: {name: static}, rescale: ";
  SessionInTraining scaled({keys + "true}"}), plain({keys + "false}"});
  const auto weight = [](const SessionInTraining& run) {
    return run.session.model().sparse->masks().layers()[0].parameter.tensor.detach();
  };
  EXPECT_TRUE(torch::allclose(weight(scaled), 2 * weight(plain)));
}

// A dense checkpoint's weights outside the first masks are zero before the first step.
TEST(SparseTraining, WeightsThatAreLoadedAreMasked) {
  const testing::ScratchFolder scratch;
  SessionInTraining dense({kTinyVit});
  const std::string path = save(dense, scratch.path());
  SessionInTraining run({kTinyVit, "sparsity={density: 0.3}", "model.init_from=" + path});
  load_initial_weights(run.session, run.recipe);
  const SparseMasks& sparse = run.session.model().sparse->masks();
  for (size_t l = 0; l < sparse.layers().size(); ++l) {
    const Parameter& parameter = sparse.layers()[l].parameter;
    const auto& all = dense.session.parameters();
    const auto same = std::ranges::find(all, parameter.name, &Parameter::name);
    EXPECT_TRUE(torch::equal(parameter.tensor.detach(), same->tensor.detach() * sparse.mask(l)));
  }
}

TEST(SparseTraining, SparseWeightsAreLoadedWithTheirMasks) {
  const testing::ScratchFolder scratch;
  SessionInTraining trained(joined({kTinyVit}, kRigl));
  for (int step = 0; step < 3; ++step) trained.session.step({});
  const std::string path = save(trained, scratch.path());
  const Overrides init{kTinyVit, "run.seed=7",
                       "model.init_from={from: " + path + ", raw_weights: true}"};
  SessionInTraining run(joined(init, kRigl));
  load_initial_weights(run.session, run.recipe);
  const SparseMasks &mine = run.session.model().sparse->masks(),
                    &theirs = trained.session.model().sparse->masks();
  for (size_t l = 0; l < mine.layers().size(); ++l) {
    EXPECT_TRUE(mine.mask(l).equal(theirs.mask(l)));
    EXPECT_TRUE(mine.layers()[l].parameter.tensor.equal(theirs.layers()[l].parameter.tensor));
  }
  SessionInTraining other(joined(init, {testing::sparse("unstructured", "set", "density: 0.3")}));
  EXPECT_THAT(loading_error(other),
              HasSubstr("its mask does not fit sparsity.pattern and density"));
}

// Masks are taken from a run of another rule, and of a run whose masks stay only the masks: in the
// new one they change.
TEST(SparseTraining, MasksAreTakenWithoutWhatElseARuleSaves) {
  for (const char* rule : {"set", "cht, stop_overlap: 0"}) {
    const testing::ScratchFolder scratch;
    SessionInTraining trained({kTinyVit, testing::sparse("unstructured", rule)});
    for (int step = 0; step < 3; ++step) trained.session.step({});
    SessionInTraining run(
        {kTinyVit, testing::sparse("unstructured", "cht, stop_overlap: 1, exclude_dropped: true"),
         "model.init_from=" + save(trained, scratch.path())});
    load_initial_weights(run.session, run.recipe);
    const torch::Tensor taken = run.session.model().sparse->masks().mask(0).clone();
    EXPECT_TRUE(taken.equal(trained.session.model().sparse->masks().mask(0)));
    for (int step = 0; step < 3; ++step) run.session.step({});
    EXPECT_FALSE(run.session.model().sparse->masks().mask(0).equal(taken)) << rule;
  }
}

TEST(SparseTraining, MasksOfAnotherPatternAreNotTaken) {
  const testing::ScratchFolder scratch;
  SessionInTraining trained(
      {kTinyVit, testing::sparse("unstructured", "set", "density: 0.5, layers: [mlp]")});
  const std::string path = save(trained, scratch.path());
  for (const char* pattern : {"n_m, of: 4", "constant_fan_in", "block, size: 2", "diagonal"}) {
    SessionInTraining other({kTinyVit,
                             testing::sparse(pattern, "set", "density: 0.5, layers: [mlp]"),
                             "model.init_from=" + path});
    EXPECT_THAT(loading_error(other), HasSubstr("its mask does not fit sparsity.pattern"))
        << pattern;
  }
}

TEST(SparseTraining, PermutationsMayNotStaySoft) {
  EXPECT_THAT(mistakes_of([] {
                SessionInTraining({kTinyVit,
                                   "sparsity={density: 0.5, permutation: {name: learned, "
                                   "until: 6step}}"});
              }),
              ElementsAre(HasSubstr("sparsity.permutation.until: step 6 is behind the end of the "
                                    "training, step 5")));
}

// Small layers are left to dense products unless sparse kernels are asked for.
TEST(SparseTraining, SparseKernelsRunWhatTheyAreAskedFor) {
  const auto count = [](const std::string& execution) {
    const SessionInTraining run({kTinyVit, testing::sparse("unstructured", "set",
                                                           "density: 0.1, layers: [mlp, stem], "
                                                           "execution: " +
                                                               execution)});
    return run.session.model().sparse->masks().run_by_kernels();
  };
  EXPECT_EQ(count("sparse"), 5);
  EXPECT_EQ(count("auto"), 0);
  EXPECT_EQ(count("masked_dense"), 0);
}

TEST(SparseTraining, LearnedPermutationsAreHardInTimeAndTheirMemoryIsGone) {
  SessionInTraining run({kTinyVit,
                         "sparsity={density: 0.5, rule: {name: static}, permutation: {name: "
                         "learned, until: 60%}}"});
  const auto& permutations = run.session.model().sparse->forms().permutations;
  EXPECT_EQ(permutations.size(), 7u);
  for (int step = 0; step < 5; ++step) {
    for (const auto& permutation : permutations) {
      EXPECT_EQ(permutation->is_soft(), step < 3) << permutation->name();
    }
    EXPECT_TRUE(run.session.step({}).applied);
  }
}

TEST(SparseTraining, SwitchesMoveAndAreHardInTime) {
  for (const std::string name : {"kaleidoscope", "benes"}) {
    SessionInTraining run({testing::kSmallExperts,
                           "sparsity={density: 0.5, rule: {name: static}, layers: [moe_c.experts], "
                           "permutation: {name: " +
                               name + ", until: 60%}}"});
    const Permutation& stack = *run.session.model().sparse->forms().permutations[0];
    const torch::Tensor before = stack.soft().detach().clone();
    EXPECT_TRUE(run.session.step({}).applied);
    EXPECT_TRUE((stack.soft() != before).all().item<bool>()) << name;
    for (int step = 1; step < 5; ++step) {
      EXPECT_EQ(stack.is_soft(), step < 3) << name;
      EXPECT_TRUE(run.session.step({}).applied);
    }
  }
}

TEST(SparseTraining, LearnedPermutationsAreHardOnceTheirPenaltyIsSmall) {
  SessionInTraining run({kTinyVit,
                         "sparsity={density: 0.5, rule: {name: static}, permutation: {name: "
                         "learned, check_every: 2step, threshold: 1, until: 100%}}"});
  const auto& permutations = run.session.model().sparse->forms().permutations;
  run.session.step({});
  EXPECT_TRUE(permutations[0]->is_soft());
  run.session.step({});
  EXPECT_FALSE(permutations[0]->is_soft());
}

TEST(SparseTraining, LearnedPermutationsStaySoftWhileTheirPenaltyIsLarge) {
  SessionInTraining run({kTinyVit,
                         "sparsity={density: 0.5, rule: {name: static}, permutation: {name: "
                         "learned, check_every: 1step, threshold: 0, until: 80%}}"});
  for (int step = 0; step < 5; ++step) {
    EXPECT_EQ(run.session.model().sparse->forms().permutations[0]->is_soft(), step < 4) << step;
    run.session.step({});
  }
}

TEST(SparseLayers, HaveProductsOfLowRankBesideAButterfly) {
  const Overrides butterfly{kTinyVit,
                            "sparsity={density: 0.75, layers: [mlp], pattern: {name: butterfly, "
                            "grid: 4, low_rank: 0.3}, rule: {name: static}}"};
  const std::vector<SparseLayerInfo> layers = sparse_layers(butterfly);
  ASSERT_EQ(layers.size(), 4u);
  // 72 of 12 x 8 weights; 21 of them are one rank of 20, and 2 of 4 blocks in a row are on.
  EXPECT_EQ(layers[0].low_rank, 1);
  EXPECT_EQ(layers[0].weights, 48 + 20);
  SessionInTraining run(butterfly);
  EXPECT_THAT(run.session.parameters(),
              Contains(::testing::Field(&Parameter::name, "backbone.blocks.0.mlp.fc1.low_rank.u")));
  EXPECT_TRUE(run.session.step({}).applied);
  EXPECT_THAT(mistakes_of([] {
                sparse_layers({"model.sparse.channel_moe.experts.hidden=8",
                               "sparsity={density: 0.9, layers: [moe_c.experts], pattern: {name: "
                               "butterfly, grid: 4, low_rank: 0.45}}"});
              }),
              Contains(HasSubstr("experts have no product of low rank")));
}

TEST(SparseTraining, ACheckpointOfAPermutedLayerIsNotTakenWithoutItsOrder) {
  const testing::ScratchFolder scratch;
  SessionInTraining trained(
      {kTinyVit, "sparsity={density: 0.5, layers: [mlp], permutation: {name: random}}"});
  const std::string path = save(trained, scratch.path());
  const Overrides init{kTinyVit, "run.seed=7", "model.init_from=" + path};
  SessionInTraining plain(joined(init, {"sparsity={density: 0.5, layers: [mlp]}"}));
  EXPECT_THAT(loading_error(plain),
              HasSubstr("blocks.0.mlp.fc1.weight is permuted, the recipe's is not"));
  SessionInTraining same(
      joined(init, {"sparsity={density: 0.5, layers: [mlp], permutation: {name: random}}"}));
  load_initial_weights(same.session, same.recipe);
  EXPECT_TRUE(same.session.model().sparse->forms().permutations[0]->index().equal(
      trained.session.model().sparse->forms().permutations[0]->index()));
}

/// Weights, masks, orders, scores and moments stay as they are, step after step.
TEST(SparseTraining, ANonFiniteGradientChangesNothing) {
  const std::string section = "sparsity={density: 0.4, layers: [mlp.fc1], ";
  for (const char* method :
       {"rule: {name: rigl, every: 1step, until: 100%}}",
        "rule: {name: mest, every: 1step, until: 100%}}",
        "rule: {name: cht, every: 1step, until: 100%}}",
        "rule: {name: soft_top_k, check_every: 1step}, pattern: {name: diagonal}}",
        "rule: {name: rigl, every: 1step, until: 100%}, permutation: {name: learned, until: 90%}}",
        "rule: {name: set, every: 1step, until: 100%}, permutation: {name: benes, groups: 4, "
        "until: 90%}}"}) {
    SessionInTraining run({kTinyVit, "optimizer={name: adamw, lr: 1e-2}", section + method});
    run.session.step({});
    const Parameter& head = run.session.parameters().back();
    const torch::Tensor kept = head.tensor.detach().clone();
    const auto digest = [&] { return state_digest(run.session, 0, 0, *run.grid.world); };
    const std::string before = digest();
    for (int step = 0; step < 3; ++step) {
      head.tensor.detach().fill_(std::numeric_limits<double>::quiet_NaN());
      EXPECT_FALSE(run.session.step({}).applied) << method;
      head.tensor.detach().copy_(kept);
      EXPECT_EQ(digest(), before) << method;
    }
  }
}

TEST(SparseLayers, SayWhichDensitiesAreOutOfReach) {
  const auto notes = [](const Overrides& overrides) {
    return sparsity_notes(sparse_layers(overrides));
  };
  EXPECT_THAT(notes({kTinyVit, "sparsity={density: 0.5}"}), IsEmpty());
  EXPECT_THAT(notes({kTinyVit,
                     "sparsity={density: 0.4, layers: [mlp], pattern: {name: n_m, of: "
                     "4}}"}),
              ElementsAre(HasSubstr("4 of 4 sparse layers reach less than 0.9 of it")));
  EXPECT_THAT(notes({kTinyVit, "sparsity={density: 1, layers: [mlp]}"}),
              ElementsAre(HasSubstr("every layer has a density of 1")));
}

}  // namespace
}  // namespace shoal
