#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "launch/convert/export.h"
#include "launch/convert/fold.h"
#include "launch/data/recipe_source.h"
#include "launch/step/session.h"
#include "launch/train/resume.h"
#include "launch/train/train.h"
#include "sparse/sparse_model.h"
#include "tests/support/checkpoint_outputs.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/model_on.h"
#include "tests/support/run_of_one_step.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::joined;
using ::testing::Not;
using testing::ScratchFolder;
using Overrides = std::vector<std::string>;

const std::string kDiagonal = "density: 0.4, pattern: {name: diagonal}, ";
const std::string kRandom = "permutation: {name: random}";
const std::string kRandomOutputs = "permutation: {name: random, axis: row}";
// Hard after the first of five steps.
const std::string kLearned = "permutation: {name: learned, mix: 0.02, until: 1step}";

std::string sparsity(const std::string& keys) { return "sparsity={" + keys + "}"; }

class Fold : public ::testing::Test {
 protected:
  void train(const Overrides& overrides, int64_t steps = 1) {
    std::filesystem::remove_all(scratch_.file("run"));
    std::filesystem::remove_all(out_);
    run_ = testing::run_of_steps(testing::equality_recipe(overrides), scratch_, steps);
  }
  nlohmann::json fold_run(bool raw_weights = false) {
    std::ostringstream out;
    EXPECT_EQ(fold({{.path = run_, .raw_weights = raw_weights}, out_, true}, out), ExitCode::kOk);
    return nlohmann::json::parse(out.str());
  }
  std::string refusal(ExitCode code) {
    std::ostringstream out;
    try {
      fold({{run_}, out_}, out);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return std::string(error.what()) + " | " + error.hint();
    }
    return "nothing was refused";
  }
  static CheckpointReader reader_of(const std::string& path) {
    return CheckpointReader(resolve_checkpoint(path));
  }
  static torch::Tensor tensor_of(const std::string& path, const std::string& name) {
    const CheckpointReader reader = reader_of(path);
    const ManifestTensor* tensor = reader.manifest().find_tensor(name);
    EXPECT_NE(tensor, nullptr) << name;
    const torch::Tensor value = torch::empty(tensor->shape, scalar_type(tensor->dtype));
    reader.read(*tensor, static_cast<char*>(value.data_ptr()));
    return value;
  }
  /// The recipe of the folded checkpoint, to train on from it.
  Recipe folded_recipe(const Overrides& overrides = {}) {
    return config::load_options<Recipe>({out_ + "/resolved.yaml", overrides, nullptr}).options;
  }
  void expect_same_results();
  void expect_no_state_of_training();

  ScratchFolder scratch_;
  std::string run_, out_ = scratch_.file("folded");
};

void Fold::expect_same_results() {
  const testing::CheckpointOutputs before = testing::checkpoint_outputs({run_}),
                                   after = testing::checkpoint_outputs({out_});
  EXPECT_TRUE(before.outputs.equal(after.outputs));
  EXPECT_TRUE(before.outputs.isfinite().all().item<bool>());
  EXPECT_EQ(before.evaluation, after.evaluation);
}

void Fold::expect_no_state_of_training() {
  for (const ManifestTensor& tensor : reader_of(out_).manifest().tensors) {
    EXPECT_THAT(tensor.name,
                AllOf(Not(HasSubstr("optimizer.")), Not(HasSubstr("average.")),
                      Not(HasSubstr("sparsity.index")), Not(HasSubstr("sparsity.soft"))));
    const std::string mask = SparseLayer::kMaskPrefix;
    if (!tensor.name.starts_with(mask)) continue;
    const std::string weight = tensor.name.substr(mask.size());
    const torch::Tensor folded = tensor_of(out_, weight);
    EXPECT_FALSE((folded * ~tensor_of(out_, tensor.name)).any().item<bool>()) << weight;
    EXPECT_FALSE(folded.equal(tensor_of(run_, weight))) << weight << " is not permuted";
  }
}

struct FoldCase {
  std::string name;
  Overrides overrides;
  friend std::ostream& operator<<(std::ostream& out, const FoldCase& test) {
    return out << test.name;
  }
};

class FoldOf : public Fold, public ::testing::WithParamInterface<FoldCase> {};

TEST_P(FoldOf, GivesTheSameBitsWithoutPermutations) {
  train(GetParam().overrides);
  const auto json = fold_run();
  EXPECT_GT(json["permutations"], 1);
  EXPECT_EQ(json["step"], 1);
  expect_same_results();
  expect_no_state_of_training();
}

// The default recipe is a Sparse-MLP: Mixer blocks, then a block of experts.
const std::string kMixerLayers = "layers: [blocks.0], density: 0.5, ";
const std::string kExpertLayers = "layers: [experts], density: 0.5, ";
INSTANTIATE_TEST_SUITE_P(
    , FoldOf,
    ::testing::Values(
        FoldCase{"VitByInputs", {testing::vit(), sparsity(kDiagonal + kRandom)}},
        FoldCase{"VitByOutputs", {testing::vit(), sparsity(kDiagonal + kRandomOutputs)}},
        FoldCase{"VitLearned", {testing::vit(), sparsity(kDiagonal + kLearned)}},
        FoldCase{"Gpt2ByInputs", joined(testing::gpt2(), {sparsity(kDiagonal + kRandom)})},
        FoldCase{"Gpt2ByOutputs", joined(testing::gpt2(), {sparsity(kDiagonal + kRandomOutputs)})},
        FoldCase{"MixerByInputs", {sparsity(kMixerLayers + kRandom)}},
        FoldCase{"MixerByOutputs", {sparsity(kMixerLayers + kRandomOutputs)}},
        FoldCase{"ExpertsByInputs", {sparsity(kExpertLayers + kRandom)}},
        FoldCase{"ExpertsByOutputs", {sparsity(kExpertLayers + kRandomOutputs)}},
        FoldCase{"ExpertsLearned", {sparsity(kExpertLayers + kLearned)}}),
    [](const auto& info) { return info.param.name; });

TEST_F(Fold, KeepsAPatternThatHasTheFoldedMasksToo) {
  const auto pattern_after = [this](const std::string& pattern, const std::string& order) {
    train({testing::vit(),
           sparsity("layers: [mlp], density: 0.5, pattern: {name: " + pattern + "}, " + order)});
    return fold_run()["pattern"].get<std::string>();
  };
  EXPECT_EQ(pattern_after("constant_fan_in", kRandom), "constant_fan_in");
  EXPECT_EQ(folded_recipe().sparsity->rule.name(), "rigl");
  EXPECT_TRUE(folded_recipe().sparsity->densities.empty());
  EXPECT_EQ(pattern_after("unstructured", kRandom), "unstructured");
  EXPECT_EQ(pattern_after("n_m, of: 4", kRandomOutputs), "n_m");
  EXPECT_EQ(pattern_after("n_m, of: 4", kRandom), "unstructured");
  EXPECT_EQ(folded_recipe().sparsity->rule.name(), "static");
  EXPECT_EQ(pattern_after("block, size: 2", kRandom), "unstructured");
  ASSERT_EQ(folded_recipe().sparsity->densities.size(), 4u);
  EXPECT_EQ(folded_recipe().sparsity->densities[0].match, "backbone.blocks.0.mlp.fc1");
}

// 5 of 12 diagonals are on, a share that no short decimal is.
TEST_F(Fold, ItsRecipeLoadsItToTrainOn) {
  train({testing::vit(), sparsity("layers: [mlp], " + kDiagonal + kRandom)});
  fold_run();
  for (const std::string& source : {std::string("run"), std::string("none")}) {
    const Recipe recipe = folded_recipe(
        source == "none" ? Overrides{} : Overrides{"model.init_from=" + out_, "run.seed=7"});
    EXPECT_EQ(recipe.sparsity->permutation.name(), "none");
    RankGrid grid = testing::self_grid();
    const OpenSplit data = open_split(make_source(recipe), Split::kTrain);
    Session session(recipe, testing::model_on(recipe, data, grid), data, grid);
    load_initial_weights(session, recipe);
    const SparseMasks& sparse = session.model().sparse->masks();
    ASSERT_EQ(sparse.layers().size(), 4u);
    for (size_t l = 0; l < sparse.layers().size(); ++l) {
      const std::string& name = sparse.layers()[l].parameter.name;
      EXPECT_EQ(sparse.mask(l).equal(tensor_of(out_, SparseLayer::kMaskPrefix + name)),
                source == "run");
      EXPECT_EQ(sparse.mask(l).sum().item<int64_t>(),
                tensor_of(run_, SparseLayer::kMaskPrefix + name).sum().item<int64_t>());
      EXPECT_EQ(sparse.layers()[l].parameter.tensor.equal(tensor_of(out_, name)), source == "run");
    }
    EXPECT_TRUE(session.step({}).applied);
  }
}

TEST_F(Fold, TakesAveragesUnlessRawWeightsAreAskedFor) {
  train({testing::vit(), sparsity(kDiagonal + kRandom), "train.average={decay: 0.6}"},
        /*steps=*/2);
  fold_run();
  expect_same_results();
  std::filesystem::remove_all(out_);
  fold_run(/*raw_weights=*/true);
  EXPECT_FALSE(testing::checkpoint_outputs({out_}).outputs.equal(
      testing::checkpoint_outputs({run_}).outputs));
  EXPECT_TRUE(testing::checkpoint_outputs({out_}).outputs.equal(
      testing::checkpoint_outputs({run_, false, {}, true}).outputs));
}

TEST_F(Fold, SoftPermutationsAreRefusedWithTheTimeTheyHarden) {
  train({testing::vit(), sparsity(kDiagonal + "permutation: {name: learned, until: 80%}")});
  EXPECT_THAT(refusal(ExitCode::kMismatch),
              AllOf(HasSubstr("the permutation of backbone.stem.weight is still soft at step 1"),
                    HasSubstr("hard from 80% of the training on"), HasSubstr("5step")));
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(Fold, NothingIsFoldedWithoutPermutations) {
  train({testing::vit(), sparsity("density: 0.5")});
  EXPECT_THAT(refusal(ExitCode::kUsage),
              AllOf(HasSubstr("sparsity.permutation is none"), HasSubstr("nothing to fold")));
  train({testing::vit()});
  EXPECT_THAT(refusal(ExitCode::kUsage), HasSubstr("its recipe has no sparsity"));
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(Fold, AFolderThatIsThereIsNotReplaced) {
  train({testing::vit(), sparsity(kDiagonal + kRandom)});
  fold_run();
  EXPECT_THAT(refusal(ExitCode::kStorage), HasSubstr("is there already"));
  expect_same_results();
  run_ = out_;
  out_ = scratch_.file("again");
  EXPECT_THAT(refusal(ExitCode::kUsage), HasSubstr("nothing to fold"));
}

TEST_F(Fold, TellsWhatBecameOfThePattern) {
  train({testing::vit(), sparsity(kDiagonal + kRandom)});
  std::ostringstream out;
  fold({{run_}, out_}, out);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("7 permutations folded into the weights"),
                               HasSubstr("masks are not diagonal any more")));
}

/// The weights that export writes for another program.
std::string exported(const std::string& path, const std::string& program, const std::string& to) {
  std::ostringstream out;
  std::filesystem::remove_all(to);
  EXPECT_EQ(export_weights({{path}, program, to}, out), ExitCode::kOk);
  return testing::read_file(to + "/model.safetensors");
}

TEST_F(Fold, ExportsOfPermutedModelsAreThoseOfFoldedOnes) {
  const std::string keys = "layers: [mlp], density: 0.5, ";
  for (const auto& [program, model] :
       {std::pair{"timm", Overrides{testing::vit()}}, std::pair{"hf", testing::gpt2()}}) {
    train(joined(model, {sparsity(keys + kRandom)}));
    fold_run();
    const std::string permuted = exported(run_, program, scratch_.file("a"));
    EXPECT_EQ(permuted, exported(out_, program, scratch_.file("b"))) << program;
    train(joined(model, {sparsity(keys + "permutation: {name: none}")}));
    EXPECT_NE(permuted, exported(run_, program, scratch_.file("b"))) << program;
  }
  train({testing::vit(), sparsity(keys + "permutation: {name: learned}")});
  std::ostringstream out;
  EXPECT_THROW(export_weights({{run_}, "timm", scratch_.file("c")}, out), Error);
  EXPECT_FALSE(std::filesystem::exists(scratch_.file("c")));
}

}  // namespace
}  // namespace shoal
