#include "launch/new_recipe/new.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "launch/check/check_recipe.h"
#include "launch/pages/picture.h"
#include "launch/recipe/recipe.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

std::string printed(const NewArguments& arguments) {
  std::ostringstream out;
  EXPECT_EQ(new_recipe(arguments, out), ExitCode::kOk);
  return out.str();
}

/// What and hint of the refusal.
std::string refusal(const NewArguments& arguments) {
  std::ostringstream out;
  try {
    new_recipe(arguments, out);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_EQ(out.str(), "");
    return std::string(error.what()) + "; " + error.hint();
  }
  ADD_FAILURE() << "was accepted";
  return "";
}

bool may_be_dense(const std::string& backbone) {
  return backbone != "sparse_mlp" && backbone != "adaptive_attention";
}

CheckedRecipe checked(const std::string& text) {
  const testing::ScratchFolder scratch;
  const std::string file = scratch.file("r.yaml");
  testing::write_file(file, text);
  return check_recipe({file, {}, {}}, config::UnsetVariable::kKeep, std::nullopt);
}

/// Numbers of experts a layer that `backbone` may have.
std::vector<int64_t> possible_experts(const std::string& backbone) {
  std::vector<int64_t> counts;
  for (const int64_t experts : {0, 1, 4, 9}) {
    const bool is_possible = experts == 0 ? may_be_dense(backbone) : backbone != "mixer";
    if (is_possible) counts.push_back(experts);
  }
  return counts;
}

TEST(NewRecipe, OfEachBackboneSourceAndNumberOfExpertsIsReadWithoutMistakes) {
  int64_t num_recipes = 0;
  for (const std::string& backbone : new_recipe_backbones()) {
    for (const std::string& source : new_recipe_sources(backbone)) {
      for (const int64_t experts : possible_experts(backbone)) {
        SCOPED_TRACE(backbone + " " + source + " " + std::to_string(experts));
        const Recipe recipe =
            config::load_options_text<Recipe>(printed({backbone, experts, source}), "r.yaml", {},
                                              config::UnsetVariable::kKeep)
                .options;
        EXPECT_EQ(recipe.model.backbone.name(), backbone);
        EXPECT_EQ(recipe.data.source.name(), source);
        ++num_recipes;
      }
    }
  }
  EXPECT_GE(num_recipes, 100);
}

// The lines of the data follow from the source, those of experts from their number, so that each of
// both is checked once with the backbone.
TEST(NewRecipe, OfEachSourceAndEachNumberOfExpertsPassesCheckWithEachBackbone) {
  for (const std::string& backbone : new_recipe_backbones()) {
    const std::vector<std::string> sources = new_recipe_sources(backbone);
    const std::vector<int64_t> counts = possible_experts(backbone);
    for (std::size_t i = 0; i < std::max(sources.size(), counts.size()); ++i) {
      const std::string& source = sources[i % sources.size()];
      const int64_t experts = counts[i % counts.size()];
      SCOPED_TRACE(backbone + " " + source + " " + std::to_string(experts));
      const CheckedRecipe recipe = checked(printed({backbone, experts, source}));
      EXPECT_EQ(recipe.counts.stages.empty(), experts == 0);
      for (const MoeStageInfo& stage : recipe.counts.stages) {
        EXPECT_EQ(stage.num_units, experts);
        EXPECT_EQ(stage.unbalanced, "") << stage.name;
      }
    }
  }
}

TEST(NewRecipe, LeavesTheBalanceLossesToTheRouter) {
  for (const char* backbone : {"vit", "sparse_mlp", "adaptive_attention", "gpt2"}) {
    EXPECT_THAT(printed({backbone, 4}), ContainsRegex("losses: +auto +#")) << backbone;
  }
}

TEST(NewRecipe, HasDefaultsForDataAndExperts) {
  const CheckedRecipe vit = checked(printed({.backbone = "vit"}));
  EXPECT_EQ(vit.loaded.options.data.source.name(), "shapes");
  EXPECT_TRUE(vit.counts.stages.empty());
  EXPECT_EQ(vit.loaded.options.task.name(), "classify");
  EXPECT_EQ(checked(printed({.backbone = "gpt2"})).loaded.options.task.name(), "lm");
  const CheckedRecipe sparse = checked(printed({.backbone = "sparse_mlp"}));
  EXPECT_EQ(sparse.counts.stages.at(0).num_units, 4);
  const CheckedRecipe denoiser = checked(printed({.backbone = "adaptive_attention"}));
  EXPECT_EQ(denoiser.loaded.options.task.name(), "denoise");
}

TEST(NewRecipe, TakesTheFolderOfTheData) {
  const auto line = [](const std::string& path) {
    const std::string text = printed({.backbone = "vit", .data = "cifar", .path = path});
    const std::size_t at = text.find("  path: ");
    return text.substr(at, text.find("  #", at) - at);
  };
  EXPECT_THAT(line("/data/cifar"), HasSubstr("path: /data/cifar "));
  EXPECT_THAT(line("my data # 3"), HasSubstr("path: \"my data # 3\""));
  EXPECT_THAT(line("${env:DATA}/x"), HasSubstr("path: \"${env:DATA}/x\""));
  EXPECT_THAT(printed({.backbone = "vit", .data = "cifar"}), HasSubstr("path: \"${env:CIFAR10}\""));
}

/// A folder to train on with images of these shorter sides.
std::string image_folder(const testing::ScratchFolder& scratch, const std::vector<int64_t>& sides) {
  int64_t number = 0;
  for (const int64_t side : sides) {
    Picture picture{side + 9, side, {}};
    picture.pixels.resize(static_cast<size_t>(picture.width * side));
    const std::string folder = scratch.file(fmt::format("train/{}", number % 2));
    std::filesystem::create_directories(folder);
    testing::write_file(fmt::format("{}/{}.png", folder, number++), png_bytes(picture));
  }
  return scratch.path();
}

TEST(NewRecipe, FitsTheSizeOfTheImages) {
  struct Expected {
    std::vector<int64_t> sides;
    std::string image_size, crops, patch;
  };
  for (const auto& [sides, image_size, crops, patch] :
       {Expected{{32, 32}, "32   # shorter side of the images: 32 pixels", "resize: 32}", "4 "},
        Expected{{28, 500, 28}, "32   # shorter side of the images: 28 pixels", "0.5, 1]", "4 "},
        Expected{{65, 65}, "80   # shorter side of the images: 65 pixels", "resize: 91}", "16 "},
        Expected{
            {400, 400}, "224   # shorter side of the images: 400 pixels", "0.08, 1]", "16 "}}) {
    const testing::ScratchFolder scratch;
    const std::string folder = image_folder(scratch, sides);
    for (const char* source : {"", "image_folder"}) {
      const std::string recipe = printed({.backbone = "vit", .data = source, .path = folder});
      EXPECT_THAT(recipe, HasSubstr("  image_size: " + image_size + "\n"));
      EXPECT_THAT(recipe, HasSubstr(crops));
      EXPECT_THAT(recipe, HasSubstr("  patch: " + patch));
    }
    for (const std::string& backbone : new_recipe_backbones()) {
      if (backbone == "gpt2" || backbone == "hspmn") continue;
      SCOPED_TRACE(backbone + " " + image_size);
      checked(printed({.backbone = backbone, .path = folder}));
    }
  }
  EXPECT_THAT(printed({.backbone = "vit", .data = "image_folder"}),
              HasSubstr("  image_size: 224\n"));
}

// They are nothing to train on, but no reason to refuse the folder.
TEST(NewRecipe, PassesOverImagesThatCannotBeDecoded) {
  const testing::ScratchFolder scratch;
  const std::string folder = image_folder(scratch, {32, 32, 32});
  testing::write_file(folder + "/train/0/0.png", "no picture");
  EXPECT_THAT(printed({.backbone = "vit", .path = folder}), HasSubstr("images: 32 pixels"));
  for (const char* name : {"/train/1/1.png", "/train/0/2.png"}) {
    testing::write_file(folder + name, "no picture");
  }
  EXPECT_THAT(printed({.backbone = "vit", .path = folder}), HasSubstr("  image_size: 224\n"));
}

TEST(NewRecipe, NamesTheSplitForClassFoldersThatHaveNone) {
  const testing::ScratchFolder scratch;
  const std::string classes = image_folder(scratch, {32, 32}) + "/train";
  EXPECT_THAT(refusal({.backbone = "vit", .path = classes}),
              AllOf(HasSubstr("no data source knows the files in '" + classes + "'"),
                    HasSubstr("shoal data split " + classes + " --valid 10%")));
}

TEST(NewRecipe, RefusesWhatDoesNotGoTogetherWithWhatDoes) {
  EXPECT_THAT(
      refusal({.backbone = "vit", .data = "text"}),
      AllOf(HasSubstr("vit reads images, and text has tokens"),
            HasSubstr("--data for vit: cifar, image_folder, pathfinder, shapes, tar_shards"),
            HasSubstr("--backbone for text: gpt2, hspmn")));
  EXPECT_THAT(refusal({.backbone = "mixer", .experts = 4}),
              HasSubstr("mixer has no experts; sparse_mlp is a Mixer with experts"));
  EXPECT_THAT(refusal({.backbone = "sparse_mlp", .experts = 0}),
              HasSubstr("sparse_mlp always has experts; mixer is the dense model"));
  EXPECT_THAT(refusal({.backbone = "vitt"}), HasSubstr("did you mean 'vit'?"));
  EXPECT_THAT(refusal({.backbone = "vit", .data = "cifr"}), HasSubstr("did you mean 'cifar'?"));
  EXPECT_THAT(refusal({.backbone = "vit", .data = "shapes", .path = "x"}),
              HasSubstr("shapes needs no files"));
}

/// The registered members, those of tests left out.
template <class Base>
std::vector<std::string> registered() {
  std::vector<std::string> names;
  for (const config::MemberInfo* member : members_of<Base>().members()) {
    if (member->doc != "for this test") names.push_back(member->name);
  }
  return names;
}

TEST(NewRecipe, KnowsEveryRegisteredBackboneAndSource) {
  std::vector<std::string> backbones = new_recipe_backbones();
  backbones.emplace_back("flat_pixels");  // no model, so that there is nothing to train
  EXPECT_THAT(backbones, UnorderedElementsAreArray(registered<Backbone>()));
  EXPECT_THAT(new_recipe_sources(), UnorderedElementsAreArray(registered<DataSource>()));
}

}  // namespace
}  // namespace shoal
