#include "launch/recipe/resume_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

TEST(ResumeRules, WhereAndHowToRunIsFree) {
  for (const char* path :
       {"run.name", "run.threads", "evaluate.every", "checkpoint.keep_last",
        "parallel.expert_ranks", "parallel.shard_optimizer", "data.path", "data.images.path",
        "data.tokenizer.vocab", "train.duration", "train.recompute", "model.moe.exchange.chunks",
        "model.sparse.token_moe.exchange.hierarchical"}) {
    EXPECT_EQ(role_of_key(path), KeyRole::kFree) << path;
  }
}

TEST(ResumeRules, WhatIsTrainedIsFixed) {
  for (const char* path : {"run.seed", "model.width", "data.source", "optimizer.name",
                           "optimizer.rules", "optimizer.rules[0].lr_scale", "train.batch",
                           "train.precision", "model.sparse.token_moe.router.k",
                           "model.sparse.token_moe.exchange.payload", "schedules"}) {
    EXPECT_EQ(role_of_key(path), KeyRole::kFixed) << path;
  }
}

TEST(ResumeRules, LearningRateMayChangeWithAWarning) {
  const auto warned = check_resume({{"optimizer.lr", "0.001", "0.002"}}, false);
  ASSERT_EQ(warned.size(), 1u);
  EXPECT_EQ(warned[0].path, "optimizer.lr");
}

TEST(ResumeRules, WhatOnlyEvaluationsReadMayChangeWithAWarning) {
  for (const char* path : {"evaluate.stride", "data.valid.samples", "data.valid.files[0]",
                           "data.images.valid.samples"}) {
    EXPECT_EQ(role_of_key(path), KeyRole::kWarned) << path;
    EXPECT_TRUE(changes_scores({{"optimizer.lr", "1", "2"}, {path, "1", "2"}})) << path;
  }
  EXPECT_EQ(role_of_key("data.train.samples"), KeyRole::kFixed);
  EXPECT_FALSE(changes_scores({{"optimizer.lr", "1", "2"}}));
}

// Sums of products in another order.
TEST(ResumeRules, HowSparseLayersAreComputedMayChangeWithAWarning) {
  EXPECT_EQ(role_of_key("sparsity.execution"), KeyRole::kWarned);
  EXPECT_EQ(role_of_key("sparsity.pattern.name"), KeyRole::kFixed);
}

TEST(ResumeRules, FixedKeysAreRefusedWithBothValues) {
  try {
    check_resume({{"model.width", "96", "128"}, {"optimizer.lr", "1", "2"}}, false);
    FAIL() << "a changed model was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kMismatch);
    EXPECT_THAT(error.what(), HasSubstr("model.width"));
    EXPECT_THAT(error.what(), HasSubstr("96"));
    EXPECT_THAT(error.what(), HasSubstr("128"));
    EXPECT_THAT(error.what(), Not(HasSubstr("optimizer.lr")));
  }
}

Recipe recipe_with(const std::string& lines_of_model) {
  return config::load_options_text<Recipe>("model: {" + lines_of_model +
                                               "}\ndata: {source: shapes}\n"
                                               "task: {name: classify}\n"
                                               "train: {duration: 1step, batch: 8}\n",
                                           "r.yaml")
      .options;
}

std::vector<config::Difference> model_differences(const std::string& before,
                                                  const std::string& after) {
  return differences_of(recipe_with(before), recipe_with(after));
}

TEST(ResumeRules, AnAutomaticWidthIsTheNumberThatItStandsFor) {
  const std::string vit = "backbone: vit, width: 64, heads: 4, hidden: ";
  EXPECT_TRUE(model_differences(vit + "256", vit + "auto").empty());
  EXPECT_TRUE(model_differences(vit + "auto", vit + "256").empty());
  EXPECT_EQ(model_differences(vit + "3072", vit + "auto").size(), 1u);
  // A width that is auto in both is not named beside the one that it follows.
  const auto wider = model_differences(vit + "auto", "backbone: vit, width: 128, heads: 4");
  ASSERT_EQ(wider.size(), 1u);
  EXPECT_EQ(wider[0].path, "model.width");
  const std::string mixer = "backbone: mixer, width: 64, ";
  EXPECT_TRUE(model_differences(mixer + "token_hidden: 32, channel_hidden: 256",
                                mixer + "token_hidden: auto, channel_hidden: auto")
                  .empty());
  EXPECT_EQ(model_differences(mixer + "token_hidden: 384, channel_hidden: 3072",
                              mixer + "token_hidden: auto, channel_hidden: auto")
                .size(),
            2u);
  const std::string gpt2 = "backbone: gpt2, width: 64, heads: 4, hidden: ";
  EXPECT_TRUE(model_differences(gpt2 + "256", gpt2 + "auto, kv_heads: 4, gelu: tanh").empty());
  EXPECT_EQ(model_differences(gpt2 + "256, mlp: swiglu", gpt2 + "auto, mlp: swiglu").size(), 1u);
}

TEST(ResumeRules, EvaluationsDependOnTheModelsKeysButThoseOfTrainingAndSpeed) {
  const auto changed = [](const std::string& before, const std::string& after) {
    std::string paths;
    for (const auto& difference : evaluated_differences(recipe_with(before), recipe_with(after))) {
      paths += difference.path + " ";
    }
    return paths;
  };
  const std::string vit = "backbone: vit, width: 64, ";
  EXPECT_EQ(changed(vit + "heads: 4", vit + "heads: 2, pool: mean, gelu: tanh"),
            "model.heads model.pool model.gelu ");
  EXPECT_EQ(
      changed(vit + "heads: 4, hidden: 256", vit + "heads: 4, drop_path: 0.1, layer_scale: 1"), "");
  EXPECT_EQ(changed(vit + "heads: 4", vit + "heads: 4, init_from: run"), "");
}

TEST(ResumeRules, AWidthOfNoSharedExpertsIsNoDifference) {
  const auto moe = [](const std::string& shared) {
    return "backbone: vit, width: 64, heads: 4, moe: {shared: {" + shared + "}}";
  };
  EXPECT_TRUE(
      model_differences(moe("count: 0, hidden: 1536"), moe("count: 0, hidden: auto")).empty());
  EXPECT_EQ(model_differences(moe("count: 1, hidden: 1536"), moe("count: 1, hidden: auto")).size(),
            1u);
}

TEST(ResumeRules, DifferencesAreListedInColumns) {
  EXPECT_EQ(describe({{"model.width", "96", "128"}, {"a", "1", "2"}}),
            "\n  model.width  checkpoint: 96   recipe: 128"
            "\n  a            checkpoint: 1   recipe: 2");
}

TEST(ResumeRules, OverrideTurnsTheRefusalIntoAWarning) {
  EXPECT_EQ(check_resume({{"model.width", "96", "128"}}, true).size(), 1u);
}

}  // namespace
}  // namespace shoal
