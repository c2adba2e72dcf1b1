#include "models/formats/own_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "launch/convert/export.h"
#include "launch/convert/import.h"
#include "launch/train/train.h"
#include "tests/support/checkpoint_outputs.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/foreign_model.h"
#include "tests/support/ranks.h"
#include "tests/support/run_of_one_step.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/train_run.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ScratchFolder;
using Overrides = std::vector<std::string>;
using testing::Tensors;

constexpr const char* kExport = "safetensors";

/// Runs that are exported in Shoal's own layout and imported again.
class OwnLayout : public ::testing::Test {
 protected:
  void train(const Overrides& overrides, int64_t steps = 1) {
    std::filesystem::remove_all(run_);
    testing::run_of_steps(testing::equality_recipe(overrides), scratch_, steps);
  }
  void export_run(bool raw_weights = false, const std::string& dtype = "") {
    std::filesystem::remove_all(out_);
    std::ostringstream out;
    EXPECT_EQ(
        export_weights({{.path = run_, .raw_weights = raw_weights}, kExport, out_, dtype}, out),
        ExitCode::kOk);
  }
  void import_back(const std::string& file, const Overrides& overrides = {}) {
    std::filesystem::remove_all(back_);
    std::ostringstream out;
    EXPECT_EQ(import_weights({file, kExport, back_, overrides}, {}, out), ExitCode::kOk);
  }
  static Tensors exported(const std::string& path) {
    const ForeignWeights weights(path);
    Tensors tensors;
    for (const auto& [name, tensor] : weights.tensors()) tensors[name] = weights.read(tensor);
    return tensors;
  }
  static Tensors saved(const std::string& path) {
    const CheckpointReader reader(resolve_checkpoint(path));
    Tensors tensors;
    for (const ManifestTensor& tensor : reader.manifest().tensors) {
      tensors[tensor.name] = torch::empty(tensor.shape, scalar_type(tensor.dtype));
      reader.read(tensor, static_cast<char*>(tensors[tensor.name].data_ptr()));
    }
    return tensors;
  }
  template <class Action>
  static std::string refusal(const Action& action, ExitCode code = ExitCode::kMismatch) {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return std::string(error.what()) + " | " + error.hint();
    }
    return "nothing was refused";
  }

  ScratchFolder scratch_;
  std::string run_ = scratch_.file("run"), out_ = scratch_.file("out"),
              back_ = scratch_.file("back");
};

struct LayoutCase {
  std::string name;
  Overrides overrides;
  friend std::ostream& operator<<(std::ostream& out, const LayoutCase& test) {
    return out << test.name;
  }
};

class OwnLayoutOf : public OwnLayout, public ::testing::WithParamInterface<LayoutCase> {};

TEST_P(OwnLayoutOf, ComputesTheSameWhenItIsReadBack) {
  train(GetParam().overrides, 2);
  export_run();
  import_back(out_ + "/model.safetensors");
  const testing::CheckpointOutputs before = testing::checkpoint_outputs({run_}),
                                   after = testing::checkpoint_outputs({back_});
  EXPECT_TRUE(before.outputs.equal(after.outputs));
  EXPECT_TRUE(before.outputs.isfinite().all().item<bool>());
  const Tensors file = exported(out_), read_back = saved(back_);
  ASSERT_EQ(file.size(), read_back.size());
  for (const auto& [name, tensor] : file) {
    EXPECT_TRUE(tensor.equal(read_back.at(name))) << name;
    EXPECT_EQ(tensor.scalar_type(), torch::kFloat64) << name;
  }
  EXPECT_THAT(testing::read_file(back_ + "/resolved.yaml"), HasSubstr("sparsity: none"));
}

const std::string kSparsity = "sparsity={density: 0.4, pattern: {name: diagonal}, permutation: ";

INSTANTIATE_TEST_SUITE_P(
    , OwnLayoutOf,
    ::testing::Values(
        LayoutCase{"SparseMlp", {}},
        LayoutCase{"VitWithExperts", {testing::vit(testing::kBlockExperts)}},
        LayoutCase{"ConvNextWithNexus", {testing::convnext(testing::kBlockNexus)}},
        LayoutCase{"HashedExperts", testing::gpt2(testing::kHashedExperts)},
        LayoutCase{"Hspmn", testing::with_hspmn(testing::text_data())},
        LayoutCase{"Denoiser", testing::denoiser("mixing: hard")},
        LayoutCase{"Moco", testing::moco()}, LayoutCase{"Averages", {"train.average={decay: 0.6}"}},
        LayoutCase{"Sparse", {testing::vit(), kSparsity + "{name: none}}"}},
        LayoutCase{"Permuted", {testing::vit(), kSparsity + "{name: random}}"}},
        LayoutCase{"PermutedExperts",
                   {"sparsity={layers: [experts], density: 0.5, permutation: {name: random}}"}}),
    [](const auto& info) { return info.param.name; });

TEST_F(OwnLayout, HasTheNamesAndNumbersOfTheCheckpoint) {
  train({});
  export_run();
  const Tensors file = exported(out_), checkpoint = saved(run_);
  ASSERT_TRUE(file.contains("backbone.blocks.1.moe_c.experts.4.fc1.weight"));
  for (const auto& [name, tensor] : file) EXPECT_TRUE(tensor.equal(checkpoint.at(name))) << name;
  for (const auto& [name, tensor] : checkpoint) {
    EXPECT_TRUE(file.contains(name) || name.starts_with("optimizer.")) << name;
  }
}

TEST_F(OwnLayout, SaysWhatMadeIt) {
  train({}, 2);
  export_run();
  const WeightOrigin origin = origin_of(ForeignWeights(out_));
  EXPECT_EQ(origin.step, "2");
  EXPECT_THAT(origin.shoal, HasSubstr("0."));
  EXPECT_EQ(origin.tokenizer, "");
  EXPECT_EQ(origin.recipe, testing::read_file(out_ + "/recipe.yaml"));
  EXPECT_THAT(origin.recipe, HasSubstr("backbone: sparse_mlp"));
  train(testing::gpt2());
  export_run();
  EXPECT_EQ(origin_of(ForeignWeights(out_)).tokenizer, "bytes");
}

TEST_F(OwnLayout, IsWholeWhateverTheRanksWere) {
  const auto of_ranks = [this](int64_t expert_ranks) {
    std::filesystem::remove_all(run_);
    const StopSignals signals;
    const Recipe recipe = testing::equality_recipe(
        {fmt::format("parallel.expert_ranks={}", expert_ranks), "train.duration=1step"});
    testing::run_grid(expert_ranks, 1,
                      [&](RankGrid& grid) { testing::train_run(recipe, run_, grid, signals); });
    export_run();
    return exported(out_);
  };
  const Tensors alone = of_ranks(1), shared = of_ranks(3);
  ASSERT_EQ(alone.size(), shared.size());
  for (const auto& [name, tensor] : alone) {
    EXPECT_EQ(tensor.sizes(), shared.at(name).sizes()) << name;
    EXPECT_TRUE(torch::allclose(tensor, shared.at(name), 1e-9, 1e-12)) << name;
  }
}

TEST_F(OwnLayout, TakesAveragesUnlessToldOtherwise) {
  train({"train.average={decay: 0.6}"}, 3);
  const Tensors checkpoint = saved(run_);
  const std::string name = "head.weight";
  ASSERT_FALSE(checkpoint.at(name).equal(checkpoint.at("average." + name)));
  export_run();
  EXPECT_TRUE(exported(out_).at(name).equal(checkpoint.at("average." + name)));
  EXPECT_FALSE(exported(out_).contains("average." + name));
  export_run(/*raw_weights=*/true);
  EXPECT_TRUE(exported(out_).at(name).equal(checkpoint.at(name)));
}

TEST_F(OwnLayout, HasZerosWhereMasksAreOff) {
  train({testing::vit(), kSparsity + "{name: none}}"});
  export_run();
  const Tensors file = exported(out_), checkpoint = saved(run_);
  const std::string name = "backbone.blocks.0.mlp.fc1.weight";
  const torch::Tensor mask = checkpoint.at("sparsity.mask." + name);
  EXPECT_FALSE((file.at(name) * ~mask).any().item<bool>());
  EXPECT_LT(mask.sum().item<int64_t>(), mask.numel());
  EXPECT_FALSE(file.contains("sparsity.mask." + name));
}

TEST_F(OwnLayout, MayHaveAnotherDtype) {
  train({});
  export_run(false, "bfloat16");
  const torch::Tensor half = exported(out_).at("head.weight");
  EXPECT_EQ(half.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(half.equal(saved(run_).at("head.weight").to(torch::kBFloat16)));
  import_back(out_);
  EXPECT_TRUE(saved(back_).at("head.weight").equal(half.to(torch::kFloat64)));
}

TEST_F(OwnLayout, IsIndependentOfWhatTheTrainingStartedFrom) {
  train({});
  const std::string first = scratch_.file("first");
  std::filesystem::rename(run_, first);
  train({"model.init_from=" + first});
  export_run();
  EXPECT_THAT(testing::read_file(out_ + "/recipe.yaml"), HasSubstr(first));
  import_back(out_, {"train.duration=7step"});
  EXPECT_THAT(testing::read_file(back_ + "/resolved.yaml"),
              AllOf(HasSubstr("duration: 7step"), Not(HasSubstr(first))));
}

TEST_F(OwnLayout, OfOtherProgramsIsRefused) {
  const std::string file = scratch_.file("theirs.safetensors");
  testing::save_tensors(file, {{"weight", torch::ones({2, 2})}});
  EXPECT_THAT(refusal([&] { import_back(file); }), HasSubstr("have no shoal_recipe"));
  EXPECT_FALSE(std::filesystem::exists(back_));
}

TEST_F(OwnLayout, OfAnotherModelIsRefusedByName) {
  train({});
  export_run();
  EXPECT_THAT(refusal([&] { import_back(out_, {"model.width=16"}); }),
              AllOf(HasSubstr("'backbone.stem.weight' is F64 [8, 48], expected numbers [16, 48]")));
}

TEST_F(OwnLayout, OfProductsOfLowRankIsExportedAlone) {
  train({testing::vit(),
         "sparsity={layers: [mlp], density: 0.75, pattern: {name: butterfly, grid: 4, low_rank: "
         "0.3}, rule: {name: static}}"});
  export_run();
  EXPECT_TRUE(exported(out_).contains("backbone.blocks.0.mlp.fc1.low_rank.u"));
  EXPECT_THAT(refusal([&] { import_back(out_); }),
              HasSubstr("low_rank.gate_bias' is part of a product of low rank beside a mask"));
}

TEST_F(OwnLayout, IsOfferedWhereAProgramHasNoLayout) {
  const std::string offer = ", or --to safetensors";
  const auto refused = [&](const std::string& program) {
    std::ostringstream out;
    return refusal([&] { export_weights({{run_}, program, out_}, out); });
  };
  train({testing::vit("pool: cls, " + testing::kBlockExperts)});
  EXPECT_THAT(refused("timm"), AllOf(HasSubstr("moe"), ::testing::EndsWith(offer)));
  EXPECT_THAT(refused("hf"), AllOf(HasSubstr("it has no layout"), ::testing::EndsWith(offer)));
}

}  // namespace
}  // namespace shoal
