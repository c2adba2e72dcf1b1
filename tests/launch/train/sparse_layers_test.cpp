#include "launch/train/sparse_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "launch/train/check_recipe.h"
#include "launch/train/restore.h"
#include "launch/train/session.h"
#include "parallel/checkpoint/checkpoint.h"
#include "runtime/base/file_system.h"
#include "runtime/recipe/config_writer.h"
#include "tests/support/config_error.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::joined;
using testing::mistakes_of;
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

/// A session of one rank in training.
struct SparseTraining {
  explicit SparseTraining(const Overrides& overrides)
      : recipe(testing::equality_recipe(overrides)),
        data(open_split(make_source(recipe), Split::kTrain)),
        session(recipe, data, grid) {}

  Recipe recipe;
  RankGrid grid = testing::self_grid();
  OpenSplit data;
  Session session;
};

const std::string kTinyVit = testing::vit();

/// A checkpoint of the run in the folder.
std::string save(SparseTraining& run, const std::string& folder) {
  PosixFileSystem files;
  CheckpointWriter::Options options;
  options.folder = folder;
  options.recipe = config::canonical_text(run.recipe);
  return CheckpointWriter(options, *run.grid.world, files).save(run.session, {0, 0, {}}).path;
}

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
                ElementsAre(HasSubstr("no layer that can be sparse")))
        << name;
  }
  EXPECT_THAT(mistakes("density: 0.5, densities: [{match: qkv, density: 0.2}]"),
              ElementsAre(HasSubstr("sparsity.densities[0].match: no layer")));
  EXPECT_THAT(mistakes("density: 0.001, layers: [blocks.0.mlp.fc1]"),
              ElementsAre(HasSubstr("blocks.0.mlp.fc1: a density of 0.001 leaves none")));
  EXPECT_THAT(mistakes("density: 0.5, layers: [mlp.fc1], pattern: {name: block, size: 8}"),
              ElementsAre(HasSubstr("blocks.0.mlp.fc1: blocks of 8 x 8 do not divide 12 x 8")));
  EXPECT_THAT(mistakes("density: 0.5, layers: [mlp]",
                       {"optimizer={name: sgd, lr: 0.1, rules: [{match: '*.mlp.fc1.weight', "
                        "freeze: true}]}"}),
              Contains(HasSubstr("blocks.0.mlp.fc1 is frozen by optimizer.rules")));
  EXPECT_THAT(mistakes("density: 0.5, rule: {name: rigl, every: 1000tok}"),
              Contains(HasSubstr("sparsity.rule: ")));
  EXPECT_THAT(mistakes("density: 0"), Contains(HasSubstr("sparsity.density")));
  EXPECT_THAT(mistakes("density: 0.5, layers: [mlp.fc1], permutation: {name: learned, groups: 3}"),
              Contains(HasSubstr("blocks.0.mlp.fc1.weight: 3 groups do not divide 8 inputs")));
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
  EXPECT_THAT(mistakes("execution: sparse", {"run.device=cuda"}),
              ElementsAre(HasSubstr("there are none on GPUs")));
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
              ElementsAre(HasSubstr("no layer that can be sparse is named 'router.fc1'")));
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

/// Weights outside the masks, their optimizer state, averages and those of the masks that changed.
void expect_sparse(Session& session) {
  const PruneGrow& sparse = *session.prune_grow();
  for (size_t l = 0; l < sparse.layers().size(); ++l) {
    const SparseLayer& layer = sparse.layers()[l];
    const torch::Tensor off = ~sparse.mask(l), weight = layer.parameter.tensor.detach();
    EXPECT_FALSE((weight * off).any().item<bool>()) << layer.parameter.name;
    for (const char* kind : {"m", "v"}) {
      const torch::Tensor state = session.optimizer().state_of(kind, layer.parameter.name)[0];
      EXPECT_FALSE((state * off).any().item<bool>()) << kind << " of " << layer.parameter.name;
    }
    const torch::Tensor& average = session.average()->average_of(layer.parameter.name);
    EXPECT_FALSE((average * off).any().item<bool>()) << layer.parameter.name;
  }
}

const Overrides kRigl{"optimizer={name: adamw, lr: 1e-2, weight_decay: 0.1}",
                      "train.average={decay: 0.6}", testing::sparse("unstructured")};

TEST(SparseTraining, KeepsWeightsStateAndAveragesWithinTheMasks) {
  SparseTraining run(kRigl);
  std::vector<torch::Tensor> before;
  const PruneGrow& sparse = *run.session.prune_grow();
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
  SparseTraining run(kRigl);
  run.session.step({});
  run.session.step({});
  const PruneGrow& sparse = *run.session.prune_grow();
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
  SparseTraining run(
      {"sparsity={density: 0.25, layers: [moe_c.experts.*.fc1], pattern: "
       "{name: constant_fan_in}, rule: {name: static}}"});
  const torch::Tensor& mask = run.session.prune_grow()->mask(0);
  EXPECT_EQ(mask.sizes(), (at::IntArrayRef{5, 4, 6}));
  EXPECT_TRUE(torch::equal(mask.sum(1), torch::full({5, 6}, 1)));
  EXPECT_FALSE(mask[0].equal(mask[1]));
}

// Outputs keep their variance: rows of weights are scaled by sqrt(4 / 1).
TEST(SparseTraining, FirstWeightsAreRescaled) {
  const std::string keys =
      "sparsity={density: 0.25, layers: [moe_c.experts.*.fc1], pattern: {name: constant_fan_in}, "
      "rule: {name: static}, rescale: ";
  SparseTraining scaled({keys + "true}"}), plain({keys + "false}"});
  const auto weight = [](const SparseTraining& run) {
    return run.session.prune_grow()->layers()[0].parameter.tensor.detach();
  };
  EXPECT_TRUE(torch::allclose(weight(scaled), 2 * weight(plain)));
}

// A dense checkpoint's weights outside the first masks are zero before the first step.
TEST(SparseTraining, WeightsThatAreLoadedAreMasked) {
  const testing::ScratchFolder scratch;
  SparseTraining dense({kTinyVit});
  const std::string path = save(dense, scratch.path());
  SparseTraining run({kTinyVit, "sparsity={density: 0.3}", "model.init_from=" + path});
  load_initial_weights(run.session, run.recipe);
  const PruneGrow& sparse = *run.session.prune_grow();
  for (size_t l = 0; l < sparse.layers().size(); ++l) {
    const Parameter& parameter = sparse.layers()[l].parameter;
    const auto& all = dense.session.parameters();
    const auto same = std::ranges::find(all, parameter.name, &Parameter::name);
    EXPECT_TRUE(torch::equal(parameter.tensor.detach(), same->tensor.detach() * sparse.mask(l)));
  }
}

/// Why the weights of model.init_from are not taken.
std::string loading_error(SparseTraining& run) {
  try {
    load_initial_weights(run.session, run.recipe);
  } catch (const Error& error) {
    return error.what();
  }
  return "taken";
}

TEST(SparseTraining, SparseWeightsAreLoadedWithTheirMasks) {
  const testing::ScratchFolder scratch;
  SparseTraining trained(joined({kTinyVit}, kRigl));
  for (int step = 0; step < 3; ++step) trained.session.step({});
  const std::string path = save(trained, scratch.path());
  const Overrides init{kTinyVit, "run.seed=7",
                       "model.init_from={from: " + path + ", raw_weights: true}"};
  SparseTraining run(joined(init, kRigl));
  load_initial_weights(run.session, run.recipe);
  const PruneGrow &mine = *run.session.prune_grow(), &theirs = *trained.session.prune_grow();
  for (size_t l = 0; l < mine.layers().size(); ++l) {
    EXPECT_TRUE(mine.mask(l).equal(theirs.mask(l)));
    EXPECT_TRUE(mine.layers()[l].parameter.tensor.equal(theirs.layers()[l].parameter.tensor));
  }
  SparseTraining other(joined(init, {testing::sparse("unstructured", "set", "density: 0.3")}));
  EXPECT_THAT(loading_error(other),
              HasSubstr("its mask does not fit sparsity.pattern and density"));
}

TEST(SparseTraining, MasksOfAnotherPatternAreNotTaken) {
  const testing::ScratchFolder scratch;
  SparseTraining trained(
      {kTinyVit, testing::sparse("unstructured", "set", "density: 0.5, layers: [mlp]")});
  const std::string path = save(trained, scratch.path());
  for (const char* pattern : {"n_m, of: 4", "constant_fan_in", "block, size: 2", "diagonal"}) {
    SparseTraining other({kTinyVit, testing::sparse(pattern, "set", "density: 0.5, layers: [mlp]"),
                          "model.init_from=" + path});
    EXPECT_THAT(loading_error(other), HasSubstr("its mask does not fit sparsity.pattern"))
        << pattern;
  }
}

TEST(SparseTraining, PermutationsMayNotStaySoft) {
  EXPECT_THAT(mistakes_of([] {
                SparseTraining({kTinyVit,
                                "sparsity={density: 0.5, permutation: {name: learned, "
                                "until: 6step}}"});
              }),
              ElementsAre(HasSubstr("sparsity.permutation.until: step 6 is behind the end of the "
                                    "training, step 5")));
}

// Small layers are left to dense products unless sparse kernels are asked for.
TEST(SparseTraining, SparseKernelsRunWhatTheyAreAskedFor) {
  const auto count = [](const std::string& execution) {
    const SparseTraining run({kTinyVit, testing::sparse("unstructured", "set",
                                                        "density: 0.1, layers: [mlp, stem], "
                                                        "execution: " +
                                                            execution)});
    return run.session.prune_grow()->run_by_kernels();
  };
  EXPECT_EQ(count("sparse"), 5);
  EXPECT_EQ(count("auto"), 0);
  EXPECT_EQ(count("masked_dense"), 0);
}

TEST(SparseTraining, LearnedPermutationsAreHardInTimeAndTheirMemoryIsGone) {
  SparseTraining run({kTinyVit,
                      "sparsity={density: 0.5, rule: {name: static}, permutation: {name: "
                      "learned, until: 60%}}"});
  const auto& permutations = run.session.model().permutations;
  EXPECT_EQ(permutations.size(), 7u);
  for (int step = 0; step < 5; ++step) {
    for (const auto& permutation : permutations) {
      EXPECT_EQ(permutation->is_soft(), step < 3) << permutation->name();
    }
    EXPECT_TRUE(run.session.step({}).applied);
  }
}

TEST(SparseTraining, LearnedPermutationsAreHardOnceTheirPenaltyIsSmall) {
  SparseTraining run({kTinyVit,
                      "sparsity={density: 0.5, rule: {name: static}, permutation: {name: "
                      "learned, check_every: 2step, threshold: 1, until: 100%}}"});
  const auto& permutations = run.session.model().permutations;
  run.session.step({});
  EXPECT_TRUE(permutations[0]->is_soft());
  run.session.step({});
  EXPECT_FALSE(permutations[0]->is_soft());
}

TEST(SparseTraining, ACheckpointOfAPermutedLayerIsNotTakenWithoutItsOrder) {
  const testing::ScratchFolder scratch;
  SparseTraining trained(
      {kTinyVit, "sparsity={density: 0.5, layers: [mlp], permutation: {name: random}}"});
  const std::string path = save(trained, scratch.path());
  const Overrides init{kTinyVit, "run.seed=7", "model.init_from=" + path};
  SparseTraining plain(joined(init, {"sparsity={density: 0.5, layers: [mlp]}"}));
  EXPECT_THAT(loading_error(plain),
              HasSubstr("blocks.0.mlp.fc1.weight is permuted, the recipe's is not"));
  SparseTraining same(
      joined(init, {"sparsity={density: 0.5, layers: [mlp], permutation: {name: random}}"}));
  load_initial_weights(same.session, same.recipe);
  EXPECT_TRUE(same.session.model().permutations[0]->index().equal(
      trained.session.model().permutations[0]->index()));
}

TEST(SparseTraining, ANonFiniteGradientChangesNoMask) {
  SparseTraining run(kRigl);
  run.session.step({});
  run.session.step({});
  const torch::Tensor mask = run.session.prune_grow()->mask(0).clone();
  const Parameter& head = run.session.parameters().back();
  const torch::Tensor kept = head.tensor.detach().clone();
  head.tensor.detach().fill_(std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(run.session.step({}).applied);
  head.tensor.detach().copy_(kept);
  EXPECT_TRUE(run.session.prune_grow()->mask(0).equal(mask));
}

}  // namespace
}  // namespace shoal
