#include "launch/maps/activation_maps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "launch/job/rank_devices.h"
#include "models/backbone.h"
#include "moe/nexus/nexus_layer.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/gradient_check.h"
#include "tests/support/markup.h"
#include "tests/support/run_of_one_step.h"
#include "tests/support/scratch_folder.h"

// B images  N tokens of an image  U units  s slots of a unit
namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::read_file;
using testing::ScratchFolder;

/// One Nexus layer on 4 x 4 patches.
class NexusProbe : public Backbone {
 public:
  struct Options {
    NexusOptions nexus;
    static constexpr auto fields() {
      return std::tuple{field("nexus", &Options::nexus, "the layer")};
    }
  };
  static constexpr int64_t kPatch = 4, kWidth = 3 * kPatch * kPatch;

  NexusProbe(const Options& options, const Context& context)
      : nexus_(register_module(
            "nexus", std::make_shared<NexusLayer>(options.nexus, kWidth, "nexus", context.build))) {
  }
  ModelOutput forward(const ModelInput& input, const StepContext& step) override {
    const torch::Tensor patches =
        input.image_bCHW.unfold(2, kPatch, kPatch).unfold(3, kPatch, kPatch);
    MoeOutput output =
        nexus_->forward(patches.permute({0, 2, 3, 1, 4, 5})
                            .reshape({patches.size(0), patches.size(2) * patches.size(3), kWidth}),
                        step);
    return {.pooled_bD = output.y_BRD.mean(1), .moe = {output.stats}};
  }
  int64_t feature_width() const override { return kWidth; }

 private:
  std::shared_ptr<NexusLayer> nexus_;
};

const Registration<Backbone, NexusProbe> registered_nexus_probe{"nexus_probe", "for this test"};

class ActivationMapsCommand : public ::testing::Test {
 protected:
  /// A run after one step; its folder.
  std::string train(const std::string& model, const std::string& precision = "float64") {
    const Recipe recipe = testing::equality_recipe(
        {"model=" + model, "data.image_size=16", "train.precision=" + precision});
    return testing::run_of_one_step(recipe, scratch_);
  }

  ExitCode draw(const std::string& run, int64_t images, bool json,
                const std::vector<std::string>& overrides = {}) {
    return draw_activation_maps(
        {.checkpoint = {.path = run, .overrides = overrides},
         .folder = scratch_.file("maps"),
         .images = images,
         .json = json},
        [](const std::string&) { return std::nullopt; }, out_);
  }

  ScratchFolder scratch_;
  std::ostringstream out_;
};

constexpr const char* kNexus =
    "{backbone: nexus_probe, nexus: {experts: {count: 3, hidden: 8}, memory: {count: 2, keys: 16, "
    "k: 2}, slots: 2}}";

TEST_F(ActivationMapsCommand, DrawsBothKindsOfUnitsBesideTheImages) {
  const std::string run = train(kNexus);
  EXPECT_EQ(draw(run, 9, true), ExitCode::kOk);  // more than a batch of 8
  const auto json = nlohmann::json::parse(out_.str());
  EXPECT_EQ(json["images"], 9);
  EXPECT_EQ(json["step"], 1);
  ASSERT_EQ(json["layers"].size(), 1u);
  const auto& layer = json["layers"][0];
  EXPECT_EQ(layer["layer"], "nexus");
  EXPECT_EQ(layer["rows"], 4);
  ASSERT_EQ(layer["images"].size(), 9u);
  for (const char* kind : {"memory_entropy", "expert_entropy"}) {
    double sum = 0.0;
    for (const auto& image : layer["images"]) {
      EXPECT_GT(image[kind], 0.0);
      EXPECT_LE(image[kind], 1.0);
      sum += image[kind].get<double>();
    }
    EXPECT_NEAR(layer[kind].get<double>(), sum / 9, 1e-12);
  }
  const std::string page = read_file(scratch_.file("maps/index.html"));
  for (const char* name :
       {"image-000.png", "image-008.nexus.memory.png", "image-008.nexus.experts.png"}) {
    EXPECT_THAT(page, HasSubstr(std::string("src=\"") + name));
    EXPECT_THAT(read_file(scratch_.file(std::string("maps/") + name)), HasSubstr("IHDR"));
  }
  // Each image with its class, and the weight that its brightest colour stands for.
  const auto label = layer["images"][0]["label"].get<std::string>();
  EXPECT_THAT((std::vector<std::string>{"disc", "square", "triangle"}), ::testing::Contains(label));
  EXPECT_THAT(page, HasSubstr("<figcaption>image 0, " + label + "</figcaption>"));
  EXPECT_THAT(page, ::testing::ContainsRegex("<th scope=.row.>image 8, [a-z]+</th>(<td>0[.][0-9]+"
                                             "</td>){2}<td>[0-9.]+</td>"));
  EXPECT_EQ(testing::markup_mistake(page), "");
}

TEST_F(ActivationMapsCommand, TellsEntropiesAsATableAndTakesOneKindAlone) {
  const std::string run =
      train("{backbone: nexus_probe, nexus: {experts: {count: 3, hidden: 8}, memory: {count: 0}}}");
  EXPECT_EQ(draw(run, 40, false), ExitCode::kOk);  // there are 11
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("step 1, mean over 11 validation images"),
                                ::testing::ContainsRegex("nexus +4 x 4 +- +[01]\\.[0-9]{4}\n"),
                                HasSubstr("maps/index.html")));
  EXPECT_THAT(read_file(scratch_.file("maps/index.html")), HasSubstr("<td>none</td>"));
}

TEST_F(ActivationMapsCommand, TakesBfloat16AsTrainingDoesAndFloat32InItsPlaceAnywhere) {
  const std::string run = train(kNexus, "bfloat16");
  if (cpu_has_bfloat16()) {
    EXPECT_EQ(draw(run, 1, false), ExitCode::kOk);
    std::filesystem::remove_all(scratch_.file("maps"));
  } else {
    EXPECT_THROW(draw(run, 1, false), Error);
    EXPECT_FALSE(std::filesystem::exists(scratch_.file("maps")));
  }
  EXPECT_EQ(draw(run, 1, false, {"train.precision=float32"}), ExitCode::kOk);
}

TEST_F(ActivationMapsCommand, RefusesFoldersThatHoldSomethingAndOtherModels) {
  const auto refusal = [&](const std::string& run) {
    try {
      draw(run, 1, false);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      return std::string(error.what());
    }
    return std::string("none");
  };
  const std::string run = train(
      "{backbone: mixer, patch: 4, width: 8, depth: 1, token_hidden: 6, "
      "channel_hidden: 12}");
  EXPECT_THAT(refusal(run), HasSubstr("has no Nexus layers"));
  EXPECT_FALSE(std::filesystem::exists(scratch_.file("maps")));
  std::filesystem::create_directory(scratch_.file("maps"));
  testing::write_file(scratch_.file("maps/mine.txt"), "x");
  EXPECT_THAT(refusal(run), HasSubstr("is not an empty folder"));
}

TEST(ActivationMap, OfEvenWeightsIsOneEverywhereWithEntropyOne) {
  const ActivationMap map = activation_map(torch::full({2, 6, 3, 2}, 1.0 / 6), 1, {2, 3, 0});
  EXPECT_THAT(map.weight, ::testing::Each(::testing::DoubleNear(1.0, 1e-6)));
  EXPECT_EQ(map.weight.size(), 6u);
  EXPECT_NEAR(map.entropy, 1.0, 1e-6);
}

TEST(ActivationMap, IsTheMeanOverUnitsAndSlots) {
  // Of 5 tokens, a class token and 2 x 2 patches: one slot takes patch 0 alone, the other half of
  // the class token and half of patch 3.
  torch::Tensor weight = torch::zeros({1, 5, 1, 2});
  weight[0][1][0][0] = 1.0;
  weight[0][0][0][1] = weight[0][4][0][1] = 0.5;
  const ActivationMap map = activation_map(weight, 0, {2, 2, 1});
  EXPECT_EQ(map.weight, (std::vector<double>{2.5, 0, 0, 1.25}));
  EXPECT_NEAR(map.entropy, 0.5 * std::log(2.0) / std::log(5.0), 1e-12);
}

TEST(TokenGrid, IsThatOfThePatchesWithOrWithoutAClassToken) {
  const auto grid = [](int64_t tokens, const ImageShape& image) {
    const TokenGrid found = find_token_grid(tokens, image).value();
    return std::tuple{found.rows, found.columns, found.first};
  };
  EXPECT_EQ(grid(64, {3, 32, 32}), std::tuple(8, 8, 0));
  EXPECT_EQ(grid(197, {3, 224, 224}), std::tuple(14, 14, 1));
  EXPECT_EQ(grid(49, {3, 224, 224}), std::tuple(7, 7, 0));
  EXPECT_EQ(grid(8, {1, 16, 32}), std::tuple(2, 4, 0));
  EXPECT_FALSE(find_token_grid(7, {3, 32, 32}));
}

}  // namespace
}  // namespace shoal
