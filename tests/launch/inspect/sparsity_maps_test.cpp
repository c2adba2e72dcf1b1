#include "launch/inspect/sparsity_maps.h"
#include "launch/data/recipe_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "launch/model/model_weights.h"
#include "launch/step/session.h"
#include "parallel/checkpoint/checkpoint.h"
#include "runtime/options/config_writer.h"
#include "sparse/sparse_model.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/failing_reads.h"
#include "tests/support/model_on.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::joined;
using testing::read_file;
using testing::ScratchFolder;
using Overrides = std::vector<std::string>;

class SparsityMaps : public ::testing::Test {
 protected:
  /// A run of five steps with a checkpoint after each; what its session is at the end.
  void train(const Overrides& overrides) {
    const Recipe recipe = testing::equality_recipe(overrides);
    RankGrid grid = testing::self_grid();
    const OpenSplit data = open_split(make_source(recipe), Split::kTrain);
    Session session(recipe, testing::model_on(recipe, data, grid), data, grid);
    PosixFileSystem files;
    std::filesystem::create_directories(run_ + "/ckpt");
    CheckpointWriter::Options options;
    options.folder = run_ + "/ckpt";
    options.keep_last = 10;
    options.run_id = "run";
    options.recipe = config::canonical_text(recipe);
    CheckpointWriter writer(options, *grid.world, files);
    for (int64_t step = 1; step <= 5; ++step) {
      session.step({});
      const auto& sparse = session.model().sparse;
      masks_.push_back(sparse ? sparse->masks().mask(0).clone() : torch::Tensor());
      const auto& permutations = sparse_forms(session.model()).permutations;
      distances_.push_back(permutations.empty() ? torch::Tensor() : permutations[0]->distance());
      ASSERT_TRUE(writer.save(session, {step, step * 8, {}}).ok);
    }
  }
  nlohmann::json draw(const CheckpointChoice& choice, const std::string& page = "") {
    std::ostringstream out;
    EXPECT_EQ(draw_sparsity(choice, page, /*json=*/true, out), ExitCode::kOk);
    return nlohmann::json::parse(out.str());
  }

  ScratchFolder scratch_;
  std::string run_ = scratch_.file("run"), page_ = scratch_.file("sparsity.html");
  std::vector<torch::Tensor> masks_, distances_;  ///< of the first layer after each step
};

/// Diagonals that change in steps 2 and 4, an order that is soft until the third.
Overrides learned_diagonals() {
  return {testing::vit(),
          "sparsity={density: 0.4, layers: [mlp], pattern: {name: diagonal}, rule: {name: set, "
          "every: 2step, fraction: 0.5, until: 100%, exclude_dropped: true}, permutation: {name: "
          "learned, until: 3step}}"};
}

TEST_F(SparsityMaps, TellsMasksAndPermutationsOfAllCheckpoints) {
  train(learned_diagonals());
  const auto json = draw({.path = run_}, page_);
  EXPECT_EQ(json["pattern"], "diagonal");
  EXPECT_EQ(json["permutation"], "learned");
  EXPECT_EQ(json["page"], page_);
  EXPECT_EQ(json["steps"], (nlohmann::json{1, 2, 3, 4, 5}));
  ASSERT_EQ(json["layers"].size(), 4u);
  const auto& layer = json["layers"][0];
  EXPECT_EQ(layer["rows"], 12);
  EXPECT_EQ(layer["columns"], 8);
  int64_t changes = 0;
  for (size_t i = 0; i < 5; ++i) {
    const auto& moment = layer["matrices"][0]["checkpoints"][i];
    const auto on = masks_[i].sum().item<int64_t>();
    EXPECT_EQ(moment["weights"], on);
    EXPECT_EQ(moment["density"], static_cast<double>(on) / 96);
    if (i == 0) {
      EXPECT_TRUE(moment["changed"].is_null());
    } else {
      const auto grown = (masks_[i] & ~masks_[i - 1]).sum().item<double>();
      EXPECT_EQ(moment["changed"], grown / static_cast<double>(on));
      changes += grown > 0 ? 1 : 0;
    }
    EXPECT_EQ(moment["permutation"]["soft"], i < 2);
    EXPECT_NEAR(moment["permutation"]["distance"].get<double>(), distances_[i][0].item<double>(),
                1e-12);
    EXPECT_EQ(moment["permutation"]["penalty"].is_number(), i < 2);
  }
  EXPECT_GT(changes, 0);
  EXPECT_THAT(read_file(page_),
              AllOf(HasSubstr("Sparse layers of run"), HasSubstr("alt=\"mask at step 1\""),
                    HasSubstr("alt=\"permutation at step 5\"")));
}

TEST_F(SparsityMaps, DrawsOneCheckpointOfExperts) {
  train({"sparsity={density: 0.5, layers: [moe_c.experts.*.fc1], permutation: {name: random}}"});
  const auto json = draw({.path = run_ + "/ckpt/step-00000002"});
  EXPECT_EQ(json["steps"], nlohmann::json{2});
  EXPECT_TRUE(json["page"].is_null());
  EXPECT_FALSE(std::filesystem::exists(page_));
  ASSERT_EQ(json["layers"].size(), 1u);
  const auto& layer = json["layers"][0];
  EXPECT_EQ(layer["rows"], 6);  // outputs, of a weight that is stored as [inputs, outputs]
  EXPECT_EQ(layer["columns"], 4);
  ASSERT_EQ(layer["matrices"].size(), 5u);
  for (int64_t unit = 0; unit < 5; ++unit) {
    const auto& matrix = layer["matrices"][static_cast<size_t>(unit)];
    EXPECT_THAT(matrix["name"].get<std::string>(), HasSubstr(fmt::format("experts.{}.fc1", unit)));
    const auto& moment = matrix["checkpoints"][0];
    const torch::Tensor mask_io = masks_[1][unit];
    EXPECT_EQ(moment["fan_out"]["max"], mask_io.sum(1).max().item<int64_t>());
    EXPECT_EQ(moment["empty_rows"], (mask_io.sum(0) == 0).sum().item<int64_t>());
    EXPECT_NEAR(moment["permutation"]["distance"].get<double>(), distances_[1][unit].item<double>(),
                1e-12);
  }
}

TEST_F(SparsityMaps, TellsTheLastCheckpointAsATable) {
  train({testing::vit(), "sparsity={density: 0.5, layers: [blocks.0.mlp.fc1]}"});
  std::ostringstream out;
  draw_sparsity({.path = run_}, page_, /*json=*/false, out);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("step 5, pattern unstructured"),
                               ::testing::ContainsRegex("mlp.fc1.weight +12 x 8 +50.00 %"),
                               HasSubstr("none"), HasSubstr("page: " + page_ + ", 5 checkpoints")));
  EXPECT_THAT(read_file(page_), ::testing::Not(HasSubstr("alt=\"permutation")));
}

TEST_F(SparsityMaps, PassOverCheckpointsThatCannotBeReadIfTold) {
  train({testing::vit(), "sparsity={density: 0.5, layers: [blocks.0.mlp.fc1]}"});
  const std::string third = run_ + "/ckpt/step-00000003";
  const testing::FailingReads failing(third + "/", EACCES);
  EXPECT_THROW(draw({.path = run_}), StorageError);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(draw({.path = run_, .override_model = true})["steps"],
            (std::vector<int64_t>{1, 2, 4, 5}));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("warning: passing over"), HasSubstr(third)));
}

TEST_F(SparsityMaps, RefusesCheckpointsWithoutSparsity) {
  train({testing::vit()});
  try {
    draw({.path = run_}, page_);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("has no sparse layers"));
    EXPECT_THAT(error.hint(), HasSubstr("name a checkpoint"));
  }
  EXPECT_FALSE(std::filesystem::exists(page_));
}

}  // namespace
}  // namespace shoal
