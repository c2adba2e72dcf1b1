#include "launch/recipe/resume_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <regex>
#include <span>

#include "runtime/base/error.h"
#include "runtime/options/config_keys.h"
#include "tests/support/equality_recipe.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

Recipe recipe_from(const std::string& text) {
  return config::load_options_text<Recipe>(text, "r.yaml").options;
}

struct Expected {
  std::string_view section;
  OnResume rule;
};
// The first section that a key is in decides; keys of none are fixed.
constexpr std::array kExpected{
    Expected{"run.seed", OnResume::kFixed},
    Expected{"run.tf32", OnResume::kWarned},
    Expected{"run", OnResume::kFree},
    Expected{"evaluate.stride", OnResume::kWarned},
    Expected{"evaluate.samples", OnResume::kWarned},
    Expected{"evaluate.score", OnResume::kWarned},
    Expected{"evaluate.sets", OnResume::kWarned},
    Expected{"evaluate", OnResume::kFree},
    Expected{"checkpoint", OnResume::kFree},
    Expected{"parallel", OnResume::kFree},
    Expected{"data.path", OnResume::kFree},
    Expected{"data.tokenizer", OnResume::kFree},
    Expected{"data.special_tokens", OnResume::kFree},
    Expected{"data.documents", OnResume::kFree},
    Expected{"data.valid", OnResume::kWarned},
    Expected{"data.prefetch", OnResume::kFree},
    Expected{"data.workers", OnResume::kFree},
    Expected{"model.init_from", OnResume::kFree},
    Expected{"model.upcycle", OnResume::kFree},
    Expected{"train.duration", OnResume::kFree},
    Expected{"train.recompute", OnResume::kFree},
    Expected{"train.log_every", OnResume::kFree},
    Expected{"train.patience", OnResume::kFree},
    Expected{"train.clip_norm", OnResume::kWarned},
    Expected{"train.clip_norm_type", OnResume::kWarned},
    Expected{"train.max_nonfinite_steps", OnResume::kWarned},
    Expected{"optimizer.lr", OnResume::kWarned},
    Expected{"optimizer.weight_decay", OnResume::kWarned},
    Expected{"schedule", OnResume::kWarned},
    Expected{"sparsity.execution", OnResume::kWarned},  // sums in another order
};

OnResume expected_rule(std::string_view key) {
  // How rows travel, in any layer; the type in which they do is a part of the model.
  if (key.ends_with(".exchange.chunks") || key.ends_with(".exchange.hierarchical")) {
    return OnResume::kFree;
  }
  const auto found = std::ranges::find_if(kExpected, [key](const Expected& expected) {
    return config::is_at_or_below(key, expected.section);
  });
  return found == kExpected.end() ? OnResume::kFixed : found->rule;
}

using Owners = std::span<const config::KeyOwner>;

/// Gives `object` the value at `path`, a key of list_keys: chooses the members that own it, and
/// puts an element into lists and optionals on the way.
void make_value(const config::Type& type, void* object, std::string_view path, Owners owners) {
  while (path.starts_with('.') || path.starts_with("[]"))
    path.remove_prefix(path[0] == '.' ? 1 : 2);
  if (type.kind == config::Kind::kOptional || type.kind == config::Kind::kList) {
    void* element =
        type.size(object) > 0 ? const_cast<void*>(type.at(object, 0)) : type.append(object);
    return make_value(type.element(), element, path, owners);
  }
  if (type.kind == config::Kind::kChoice && !owners.empty()) {
    auto& choice = const_cast<config::ChoiceValue&>(type.choice(object));
    ASSERT_EQ(type.members().noun(), owners[0].noun);
    choice.choose(type.members().at(owners[0].member));
    return make_value(choice.member()->options_type(), choice.erased_options(), path,
                      owners.subspan(1));
  }
  const auto own = std::ranges::find_if(type.fields, [path](const config::FieldInfo& field) {
    return !field.rules.is_inlined && config::is_at_or_below(path, field.name);
  });
  if (own != type.fields.end()) {
    return make_value(own->type(), own->member(object), path.substr(own->name.size()), owners);
  }
  for (const config::FieldInfo& field : type.fields) {
    if (field.rules.is_inlined) make_value(field.type(), field.member(object), path, owners);
  }
}

TEST(ResumeRules, AreThoseOfTheFieldsOfEachKey) {
  const config::Type& type = config::type_of<Recipe>();
  int64_t num_other = 0;
  for (const config::KeyInfo& key : config::list_keys(type)) {
    Recipe recipe;
    make_value(type, &recipe, key.path, key.owners);
    const std::string path = std::regex_replace(key.path, std::regex("\\[\\]"), "[0]");
    const ResumeRule rule = rules_of_key(recipe, path).resume;
    EXPECT_EQ(rule.on_resume, expected_rule(key.path)) << key.path;
    const bool is_evaluated = key.path == "evaluate.stride" || key.path == "evaluate.samples" ||
                              key.path == "evaluate.score" || key.path == "evaluate.sets";
    EXPECT_EQ(rule.changes_scores, config::is_at_or_below(key.path, "data.valid") || is_evaluated)
        << key.path;
    num_other += rule.on_resume != OnResume::kFixed ? 1 : 0;
  }
  EXPECT_GT(num_other, 100);
}

TEST(ResumeRules, ASourceInsideAnotherBringsItsOwn) {
  const Recipe recipe = recipe_from(
      "model: {backbone: hspmn, causal: false}\n"
      "data: {source: pixels, images: {source: cifar, path: x, valid: {samples: 8}}}\n"
      "task: {name: classify}\ntrain: {duration: 1step, batch: 8}\n");
  EXPECT_EQ(rules_of_key(recipe, "data.images.path").resume.on_resume, OnResume::kFree);
  EXPECT_EQ(rules_of_key(recipe, "data.images.valid.samples").resume.on_resume, OnResume::kWarned);
  EXPECT_TRUE(rules_of_key(recipe, "data.images.valid.samples").resume.changes_scores);
  EXPECT_EQ(rules_of_key(recipe, "data.images.train.samples").resume.on_resume, OnResume::kFixed);
  EXPECT_EQ(rules_of_key(recipe, "data.images.source").resume.on_resume, OnResume::kFixed);
}

TEST(ResumeRules, LearningRateMayChangeWithAWarning) {
  const auto warned =
      check_resume({{{"optimizer.lr", "0.001", "0.002"}, {{OnResume::kWarned}}}}, false);
  ASSERT_EQ(warned.size(), 1u);
  EXPECT_EQ(warned[0].path, "optimizer.lr");
}

TEST(ResumeRules, ScoresCompareUnlessAKeyOfEvaluationsChanges) {
  const ChangedKey lr{{"optimizer.lr", "1", "2"}, {{OnResume::kWarned}}};
  EXPECT_FALSE(changes_scores({lr}));
  EXPECT_TRUE(changes_scores({lr, {{"evaluate.stride", "1", "2"}, {{OnResume::kWarned, true}}}}));
}

TEST(ResumeRules, OtherSetsChangeScores) {
  const auto with_sets = [](const std::string& sets) {
    return testing::equality_recipe({"evaluate.sets=" + sets});
  };
  const Recipe one = with_sets("{noisy: {noise: 0.4}}");
  EXPECT_TRUE(differences_of(one, one).empty());
  for (const char* other : {"{}", "{noisy: {noise: 0.5}}", "{noisy: {noise: 0.4}, more: {}}"}) {
    const auto warned = check_resume(differences_of(one, with_sets(other)), false);
    EXPECT_TRUE(changes_scores(warned)) << other;
  }
  const Recipe away = with_sets("{a: {source: image_folder, path: x}}");
  EXPECT_FALSE(
      changes_scores(differences_of(away, with_sets("{a: {source: image_folder, path: moved}}"))));
}

TEST(ResumeRules, AutomaticNormalisationOfASetIsTheNumbersThatItStandsFor) {
  const auto with_set = [](const std::string& normalise) {
    return testing::equality_recipe(
        {"evaluate.sets.a={source: cifar, classes: 10, normalise: " + normalise + "}"});
  };
  const Recipe automatic = with_set("{mean: auto, std: auto}");
  const std::string std_of = ", std: [0.247, 0.2435, 0.2616]}";
  EXPECT_TRUE(
      differences_of(automatic, with_set("{mean: [0.4914, 0.4822, 0.4465]" + std_of)).empty());
  EXPECT_EQ(differences_of(automatic, with_set("{mean: [0.4, 0.4, 0.4]" + std_of)).size(), 1u);
}

TEST(ResumeRules, FixedKeysAreRefusedWithBothValues) {
  try {
    check_resume(
        {{{"model.width", "96", "128"}}, {{"optimizer.lr", "1", "2"}, {{OnResume::kWarned}}}},
        false);
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
  return recipe_from("model: {" + lines_of_model +
                     "}\ndata: {source: shapes}\n"
                     "task: {name: classify}\n"
                     "train: {duration: 1step, batch: 8}\n");
}

std::vector<ChangedKey> model_differences(const std::string& before, const std::string& after) {
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
  EXPECT_EQ(describe({{{"model.width", "96", "128"}}, {{"a", "1", "2"}}}),
            "\n  model.width  checkpoint: 96   recipe: 128"
            "\n  a            checkpoint: 1   recipe: 2");
}

TEST(ResumeRules, OverrideTurnsTheRefusalIntoAWarning) {
  EXPECT_EQ(check_resume({{{"model.width", "96", "128"}}}, true).size(), 1u);
}

}  // namespace
}  // namespace shoal
