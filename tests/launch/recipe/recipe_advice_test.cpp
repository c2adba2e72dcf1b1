#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "launch/new_recipe/new.h"
#include "launch/recipe/recipe.h"
#include "launch/recipe/recipes.h"
#include "tests/support/config_error.h"

/// What errors in recipes advise must work when it is followed.
namespace shoal {
namespace {

using Words = std::vector<std::string>;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string quickstart() {
  return find_recipes_folder(std::filesystem::read_symlink("/proc/self/exe")) + "/quickstart.yaml";
}

Words mistakes(const Words& overrides) {
  return testing::mistakes_of([&] {
    config::load_options<Recipe>({quickstart(), overrides, nullptr}, config::UnsetVariable::kKeep);
  });
}

Words mistakes_in(const std::string& text, const Words& overrides) {
  return testing::mistakes_of([&] {
    config::load_options_text<Recipe>(text, "r.yaml", {"", overrides, nullptr},
                                      config::UnsetVariable::kKeep);
  });
}

/// The override that a message advises in place of `given`; "" if it advises none.
std::string advised(const std::string& given, const std::string& line) {
  const std::string key = given.substr(0, given.find('='));
  const std::string value = given.substr(given.find('=') + 1);
  std::smatch found;
  if (std::regex_search(line, found, std::regex("; write '?([^']*=[^']*)'?$"))) return found[1];
  if (std::regex_search(line, found, std::regex("a list, as (\\[.*\\]), found"))) {
    return key + "=" + found[1].str();
  }
  if (std::regex_search(line, found, std::regex("needs a unit: .*?([^ ]+)$"))) {
    return key + "=" + found[1].str();  // the last example
  }
  if (!std::regex_search(line, found, std::regex("did you mean '([^']*)'\\?$"))) return "";
  const bool is_key = line.find("unknown key") != std::string::npos;
  return is_key ? found[1].str() + "=" + value : key + "=" + found[1].str();
}

TEST(RecipeAdvice, IsAcceptedWhenItIsFollowed) {
  struct Case {
    std::string given, advice;
  };
  const std::string token = "model.sparse.token_moe.", channel = "model.sparse.channel_moe.";
  for (const auto& [given, advice] :
       std::vector<Case>{{token + "losses=[importance]", token + "losses=[{name: importance}]"},
                         {token + "losses=[importance, load]",
                          token + "losses=[{name: importance}, {name: load}]"},
                         {token + "losses=load", token + "losses=[{name: load}]"},
                         {token + "experts=8", token + "experts.count=8"},
                         {"model.sparse.token_moe=8", token + "experts.count=8"},
                         {channel + "router=2", channel + "router.k=2"},
                         {channel + "router=top_k", channel + "router.name=top_k"},
                         {channel + "capacity=1.5", channel + "capacity.factor=1.5"},
                         {"optimizer=adamw", "optimizer.name=adamw"},
                         {"schedule.warmup=0.05", "schedule.warmup=5%"},
                         {"schedule.warmup=20", "schedule.warmup=20%"},
                         {"checkpoint.every=5m", "checkpoint.every=5min"},
                         {"train.duration=5 epochs", "train.duration=5ep"},
                         {"run.device=gpu", "run.device=cuda"},
                         {"train.precision=bf16", "train.precision=bfloat16"},
                         {"lr=0.1", "optimizer.lr=0.1"},
                         {"data.lr=0.1", "optimizer.lr=0.1"},
                         {"schedule.lr=0.1", "optimizer.lr=0.1"},
                         {"dim=32", "model.width=32"},
                         {"patch_size=8", "model.patch=8"},
                         {"num_experts=8", token + "experts.count=8"},
                         {"top_k=2", token + "router.k=2"},
                         {"batch_size=32", "train.batch=32"}}) {
    const Words lines = mistakes({given});
    ASSERT_THAT(lines, ::testing::Not(IsEmpty())) << given;
    const std::string found = advised(given, lines.front());
    EXPECT_EQ(found, advice) << lines.front();
    EXPECT_THAT(mistakes({found}), IsEmpty());
  }
}

TEST(RecipeAdvice, TellsToWhichModelsASectionBelongs) {
  for (const char* given : {"moe=8", "moe.experts.count=8"}) {
    EXPECT_THAT(mistakes({given}),
                ::testing::ElementsAre(HasSubstr("unknown key; 'model.moe' belongs to backbone ")));
  }
  std::ostringstream vit;
  new_recipe({.backbone = "vit", .experts = 8}, vit);
  EXPECT_THAT(mistakes_in(vit.str() + "moe: {experts: {count: 4}}\n", {}),
              ::testing::ElementsAre(HasSubstr("moe: unknown key; did you mean 'model.moe'?")));
}

TEST(RecipeAdvice, TellsHowToWriteTheHomeFolder) {
  std::ostringstream cifar;
  new_recipe({.backbone = "vit", .data = "cifar"}, cifar);
  EXPECT_THAT(mistakes_in(cifar.str(), {"data.path=~"}),
              ::testing::ElementsAre(
                  HasSubstr("'~' alone is null in YAML; write ~/ for the home folder, or auto")));
  for (const char* fine : {"data.path=~/", "data.path=auto", "data.path=null"}) {
    EXPECT_THAT(mistakes_in(cifar.str(), {fine}), IsEmpty());
  }
}

/// With one choice changed, and every key dropped that the messages say to drop.
void follow_drops(const std::string& text, const std::string& change) {
  Words overrides{change};
  for (const std::string& line : mistakes_in(text, overrides)) {
    std::smatch found;
    EXPECT_TRUE(std::regex_search(line, found, std::regex("drop it with (~[^ ]+)$"))) << line;
    if (!found.empty()) overrides.push_back(found[1]);
  }
  EXPECT_GT(overrides.size(), 2u);
  EXPECT_THAT(mistakes_in(text, overrides), IsEmpty());
}

TEST(RecipeAdvice, DropsWhatAChangedChoiceHasNoMore) {
  std::ostringstream vit;
  new_recipe({.backbone = "vit", .experts = 8, .data = "cifar"}, vit);
  follow_drops(vit.str(), "data.source=shapes");
  follow_drops(
      "model: {backbone: sparse_mlp, patch: 4, width: 96, dense_blocks: 2, token_hidden: 64,\n"
      "  channel_hidden: 128, sparse_blocks: 1, sparse: {tokens: 64, width: 64}}\n"
      "run: {name: a}\ntask: {name: classify}\ndata: {source: shapes, image_size: 32}\n"
      "optimizer: {name: adamw}\nschedule: {name: cosine}\n"
      "train: {duration: 3ep, batch: 64}\n",
      "model.backbone=vit");
}

}  // namespace
}  // namespace shoal
