#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/options/key_synonyms.h"
#include "tests/parsers/recipe_helper.h"

namespace shoal::sample {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// What follows "unknown key" where `key` is given in this section.
std::string told(const std::string& path) {
  const std::vector<std::string> lines = mistakes(kGood, {path + "=1"});
  EXPECT_EQ(lines.size(), 1u) << path;
  const std::string head = "command line: " + path + "=1: unknown key";
  EXPECT_TRUE(!lines.empty() && lines[0].starts_with(head)) << path;
  return lines.empty() ? "" : lines[0].substr(head.size());
}

TEST(UnknownKey, IsKnownByItsNameInOtherPrograms) {
  EXPECT_EQ(told("model.dim"), "; did you mean 'width'?");
  EXPECT_EQ(told("model.d-model"), "; did you mean 'width'?");
  EXPECT_EQ(told("model.intermediate_size"), "; did you mean 'hidden'?");
  EXPECT_EQ(told("train.batch_size"), "; did you mean 'batch'?");
  EXPECT_EQ(told("train.epochs"), "; did you mean 'duration'?");
  EXPECT_EQ(told("optimizer.learning_rate"), "; did you mean 'lr'?");
  EXPECT_EQ(told("train.lr"), "; did you mean 'optimizer.lr'?");
  EXPECT_EQ(told("learning_rate"), "; did you mean 'optimizer.lr'?");
  EXPECT_EQ(told("data.batch_size"), "; did you mean 'train.batch'?");
}

TEST(UnknownKey, MayBeAPathThatIsWrittenAsOneKey) {
  EXPECT_THAT(mistakes(kGood + "train.batch: 64\n"),
              ElementsAre("r.yaml:4:1: train.batch: unknown key; write it nested: train: {batch: "
                          "...}"));
}

TEST(UnknownKey, OfAMembersNameIsThatOfItsSection) {
  EXPECT_EQ(told("optimizer.type"), "; did you mean 'name'?");
  EXPECT_EQ(told("model.type"), "; did you mean 'backbone'?");
}

TEST(UnknownKey, MayBeAMisspeltOrShortenedOne) {
  EXPECT_EQ(told("model.widht"), "; did you mean 'width'?");
  EXPECT_EQ(told("model.router.keep"), "; did you mean 'keep_fraction'?");
  EXPECT_EQ(told("model.zebra"), "");
}

TEST(UnknownKey, OfAnExactNameElsewhereIsThatOne) {
  EXPECT_EQ(told("path"), "; did you mean 'data.path'?");  // rather than data, two letters away
  EXPECT_EQ(told("dat"), "; did you mean 'data'?");
}

TEST(UnknownKey, MayBeOneOfAnotherLevel) {
  EXPECT_EQ(told("model.top_k"), "; did you mean 'model.router.top_k'?");
  EXPECT_EQ(told("model.weight"),
            "; 'model.losses[].weight' belongs to backbone mixer; balance loss importance");
}

TEST(UnknownKey, MayBeLeftOverFromAnotherMember) {
  EXPECT_THAT(
      mistakes(kGood + "optimizer: {name: lamb, beta2: 0.5}\n", {"optimizer.name=sgd"}),
      ElementsAre("r.yaml:4:25: optimizer.beta2: unknown key of optimizer 'sgd'; it belongs "
                  "to lamb; drop it with ~optimizer.beta2"));
  EXPECT_THAT(mistakes(kGood, {"optimizer.name=sgd", "optimizer.beta2=0.5"}),
              ElementsAre("command line: optimizer.beta2=0.5: unknown key of optimizer 'sgd'; it "
                          "belongs to lamb"));
  EXPECT_THAT(mistakes(kGood + "optimizer: {name: lamb, beta2: 0.5}\n",
                       {"optimizer.name=sgd", "~optimizer.beta2"}),
              IsEmpty());
}

TEST(UnknownKey, MayBelongToAMemberOfAnotherSection) {
  EXPECT_EQ(told("train.momentum"), "; 'optimizer.momentum' belongs to optimizer sgd");
}

TEST(KeySynonyms, TellWhereValuesDiffer) {
  EXPECT_EQ(config::difference_of("min_lr", "end"), "a factor of the peak rate");
  EXPECT_EQ(config::difference_of("mlp_ratio", "hidden"), "a width, not a ratio");
  EXPECT_EQ(config::difference_of("mlp_dim", "hidden"), "");
}

TEST(KeySynonyms, KnowValues) {
  EXPECT_EQ(config::value_for_word("GPU", {"cpu", "cuda"}), "cuda");
  EXPECT_EQ(config::value_for_word("gpu", {"float32"}), "");
  EXPECT_EQ(config::value_for_word("cuda", {"cpu", "cuda"}), "");
}

TEST(KeySynonyms, AreOfWholeWordsInAnyCase) {
  EXPECT_THAT(config::keys_for_word("Batch-Size"), ElementsAre("batch"));
  EXPECT_THAT(config::keys_for_word("hidden_size"), ElementsAre("width", "widths"));
  EXPECT_THAT(config::keys_for_word("top_k"), ElementsAre("k", "router.k"));
  EXPECT_THAT(config::keys_for_word("num_experts"), ElementsAre("experts.count"));
  EXPECT_THAT(config::keys_for_word("channels", "model"), ElementsAre("width", "widths"));
  EXPECT_THAT(config::keys_for_word("channels", "data"), IsEmpty());
  EXPECT_THAT(config::keys_for_word("batch size"), IsEmpty());
  EXPECT_THAT(config::keys_for_word(""), IsEmpty());
}

}  // namespace
}  // namespace shoal::sample
