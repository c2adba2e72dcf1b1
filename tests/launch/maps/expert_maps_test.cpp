#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "launch/maps/image_maps.h"
#include "models/backbone.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/run_of_one_step.h"
#include "tests/support/scratch_folder.h"

// B images  N patches of an image
namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::read_file;
using testing::ScratchFolder;

/// 4 x 4 patches, of which those above 1/2 in the mean go to unit 2, the others to unit 0, in the
/// layer `bright`; and a layer whose rows are no patches.
class BrightnessProbe : public Backbone {
 public:
  struct Options {
    static constexpr auto fields() { return std::tuple{}; }
  };
  static constexpr int64_t kPatch = 4, kWidth = 3 * kPatch * kPatch;

  BrightnessProbe(const Options&, const Context&) {}
  ModelOutput forward(const ModelInput& input, const StepContext& step) override {
    const torch::Tensor patch_BND = input.image_bCHW.unfold(2, kPatch, kPatch)
                                        .unfold(3, kPatch, kPatch)
                                        .permute({0, 2, 3, 1, 4, 5})
                                        .flatten(3)
                                        .flatten(1, 2);
    const torch::Tensor unit_T = (patch_BND.mean(2) > 0.5).to(torch::kInt64).flatten() * 2;
    StatSums sums;
    sums.load_U = torch::bincount(unit_T, {}, 3).to(torch::kFloat64);
    sums.tokens = sums.choices = unit_T.numel();
    ModelOutput output{.pooled_bD = patch_BND.mean(1)};
    for (const char* layer : {"bright", "channels", "odd", "unrouted"}) {
      output.moe.push_back(make_stats(layer, UnitPlacement::contiguous(3, 1), sums));
      output.moe.back().rows_are_tokens = std::string(layer) != "channels";
    }
    if (!step.training) {
      output.moe[0].first_unit_T = output.moe[1].first_unit_T = unit_T;
      output.moe[2].first_unit_T = unit_T.new_zeros({7 * patch_BND.size(0)});
    }
    return output;
  }
  int64_t feature_width() const override { return kWidth; }
};

const Registration<Backbone, BrightnessProbe> registered_brightness{"brightness_probe",
                                                                    "for this test"};

class ExpertMapsCommand : public ::testing::Test {
 protected:
  std::string train(const std::vector<std::string>& overrides) {
    return testing::run_of_one_step(
        testing::equality_recipe(testing::joined({"data.image_size=16"}, overrides)), scratch_);
  }
  std::string train_probe() {
    return train(
        {"model={backbone: brightness_probe}", "data.normalise={mean: [0, 0, 0], std: [1, 1, 1]}"});
  }
  ExitCode draw(const std::string& run, int64_t images, bool json) {
    return draw_expert_maps(
        {.checkpoint = {.path = run},
         .folder = scratch_.file("maps"),
         .images = images,
         .json = json},
        [](const std::string&) { return std::nullopt; }, out_);
  }
  std::string refusal(const std::string& run) {
    try {
      draw(run, 1, false);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      return error.what();
    }
    return "none";
  }

  ScratchFolder scratch_;
  std::ostringstream out_;
};

TEST_F(ExpertMapsCommand, TellsWhichRegionsChooseWhichUnit) {
  EXPECT_EQ(draw(train_probe(), 9, true), ExitCode::kOk);  // more than a batch of 8
  const auto json = nlohmann::json::parse(out_.str());
  EXPECT_EQ(json["images"], 9);
  EXPECT_EQ(json["measured_images"], 11);  // all there are
  ASSERT_EQ(json["layers"].size(), 1u);
  const auto& layer = json["layers"][0];
  EXPECT_EQ(layer["layer"], "bright");
  EXPECT_EQ(layer["rows"], 4);
  EXPECT_EQ(layer["patches"], 11 * 16);
  ASSERT_EQ(layer["units"].size(), 3u);  // every patch has a unit
  const auto &dark = layer["units"][0], &unused = layer["units"][1], &bright = layer["units"][2];
  EXPECT_LT(dark["brightness"]["mean"], 0.5);
  EXPECT_LT(dark["brightness"]["difference"], 0.0);
  EXPECT_GT(bright["brightness"]["mean"], 0.5);
  EXPECT_GT(bright["brightness"]["difference"], 0.0);
  EXPECT_EQ(unused["share"], 0.0);
  EXPECT_FALSE(unused.contains("brightness"));
  const auto share = [](const auto& unit) { return unit["share"].template get<double>(); };
  EXPECT_NEAR(share(dark) * dark["brightness"]["mean"].get<double>() +
                  share(bright) * bright["brightness"]["mean"].get<double>(),
              layer["all"]["brightness"]["mean"].get<double>(), 1e-12);
  EXPECT_NEAR(layer["all"]["vertical"]["mean"].get<double>(), 0.5, 1e-12);
  ASSERT_EQ(json["left_out"].size(), 3u);
  EXPECT_EQ(json["left_out"][0]["layer"], "channels");
  EXPECT_EQ(json["left_out"][1]["reason"], "its 7 tokens are not patches");
  EXPECT_EQ(json["left_out"][2]["layer"], "unrouted");
  EXPECT_THAT(read_file(scratch_.file("maps/index.html")), HasSubstr("image-008.bright.png"));
  EXPECT_THAT(read_file(scratch_.file("maps/image-008.bright.png")), HasSubstr("IHDR"));
}

TEST_F(ExpertMapsCommand, TellsThemAsATable) {
  EXPECT_EQ(draw(train_probe(), 2, false), ExitCode::kOk);
  EXPECT_THAT(
      out_.str(),
      AllOf(HasSubstr("step 1, patches of 11 validation images"),
            ::testing::ContainsRegex("bright +all patches +100.0 % +0\\.[0-9]+ ±0\\.[0-9]+ "),
            ::testing::ContainsRegex("\n +unit 1 +0.0 % +- +- +- +-"),
            HasSubstr("left out: channels, its rows are channels or mixtures"),
            HasSubstr("pictures of 2: ")));
  EXPECT_FALSE(std::filesystem::exists(scratch_.file("maps/image-002.png")));
}

TEST_F(ExpertMapsCommand, MeasuresCleanImagesWhereTheTaskAddsNoise) {
  // With this much noise the router sees other images than those that are measured.
  const std::string run =
      train({"model={backbone: vit, patch: 4, width: 8, depth: 1, heads: 2, "
             "hidden: 12, pool: mean, moe: {router: {name: top_k, k: 1}, "
             "experts: {count: 3, hidden: 6}}}",
             "task={name: denoise, sigma: 5}", "data.normalise={mean: [0, 0, 0], std: [1, 1, 1]}"});
  EXPECT_EQ(draw(run, 1, true), ExitCode::kOk);
  const auto all = nlohmann::json::parse(out_.str())["layers"][0]["all"];
  std::filesystem::remove_all(scratch_.file("maps"));
  std::filesystem::remove_all(scratch_.file("run"));
  out_.str("");
  EXPECT_EQ(draw(train_probe(), 1, true), ExitCode::kOk);
  EXPECT_EQ(nlohmann::json::parse(out_.str())["layers"][0]["all"], all);
}

TEST_F(ExpertMapsCommand, TakesALayerBehindAClassTokenAndLeavesChannelsOut) {
  const std::string run = train({testing::vit(testing::kBlockExperts + ", pool: cls")});
  EXPECT_EQ(draw(run, 1, true), ExitCode::kOk);
  const auto vit = nlohmann::json::parse(out_.str());
  EXPECT_EQ(vit["layers"][0]["layer"], "blocks.1.moe");
  EXPECT_EQ(vit["layers"][0]["patches"], 11 * 16);
  std::filesystem::remove_all(scratch_.file("maps"));
  std::filesystem::remove_all(scratch_.file("run"));
  out_.str("");
  EXPECT_EQ(draw(train({"model.width=16", "model.sparse.rescale=false"}), 1, true),
            ExitCode::kOk);  // 16 channels, 16 patches
  const auto mlp = nlohmann::json::parse(out_.str());
  ASSERT_EQ(mlp["layers"].size(), 1u);
  EXPECT_EQ(mlp["layers"][0]["layer"], "blocks.1.moe_c");
  EXPECT_EQ(mlp["left_out"][0]["layer"], "blocks.1.moe_s");
}

TEST_F(ExpertMapsCommand, RefusesOtherModelsAndFoldersThatHoldSomething) {
  const std::string dense = train({testing::vit()});
  EXPECT_THAT(refusal(dense), HasSubstr("has no MoE layers over patches of images"));
  EXPECT_FALSE(std::filesystem::exists(scratch_.file("maps")));
  std::filesystem::create_directory(scratch_.file("maps"));
  testing::write_file(scratch_.file("maps/mine.txt"), "x");
  EXPECT_THAT(refusal(dense),
              AllOf(HasSubstr("--expert-maps"), HasSubstr("is not an empty folder")));
  std::filesystem::remove_all(scratch_.file("maps"));
  std::filesystem::remove_all(scratch_.file("run"));
  const std::string text = testing::run_of_one_step(
      testing::equality_recipe(testing::gpt2(testing::kBlockExperts)), scratch_);
  EXPECT_THAT(refusal(text), HasSubstr("expert maps are drawn on images"));
}

TEST_F(ExpertMapsCommand, NamesTheLayersIfNoneIsOverPatches) {
  const std::string run =
      train({"model.sparse.channel_moe=null", "model.sparse.channel_hidden=12"});
  EXPECT_THAT(refusal(run),
              HasSubstr("(blocks.1.moe_s: its rows are channels or mixtures of tokens)"));
}

}  // namespace
}  // namespace shoal
