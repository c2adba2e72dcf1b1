#include "runtime/options/automatic_width.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "launch/check/check_recipe.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::ScratchFolder;

const std::string kImages = "data: {source: shapes, image_size: 8, classes: 3}\n";
const std::string kText =
    "data: {source: text, sequence: 8, train: {files: [a]}, valid: {files: [b]}}\n";
const std::string kRest = "train: {duration: 1step, batch: 8}\ntask: ";

/// Why a recipe of a model on images, or on text, is refused.
std::string refusal(const std::string& model, const std::string& data = kImages,
                    const std::string& task = "{name: classify}\n") {
  const ScratchFolder scratch;
  const std::string path = scratch.file("r.yaml");
  testing::write_file(path, data + "model: " + model + "\n" + kRest + task);
  try {
    check_recipe({path, {}, {}}, config::UnsetVariable::kKeep, 1);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.code(), ExitCode::kRecipe);
    return std::string(error.what()).substr(scratch.path().size() + 1);
  }
  return "nothing was refused";
}

std::string text_refusal(const std::string& model) { return refusal(model, kText, "{name: lm}\n"); }

TEST(AutomaticWidth, ThatExceedsTheLimitIsRefusedAtItsKey) {
  EXPECT_EQ(refusal("{backbone: vit, patch: 4, depth: 1, heads: 8, width: 524288, hidden: auto}"),
            "r.yaml:2:77: model.hidden: auto is 2097152 at a width of 524288, and must be at most "
            "1048576; set it, or lower the width");
  EXPECT_EQ(refusal("{backbone: vit, patch: 4, depth: 1, heads: 8, width: 524288, hidden: 1024}"),
            "nothing was refused");
  EXPECT_EQ(refusal("{backbone: vit, patch: 4, depth: 1, heads: 8, width: 262144}"),
            "nothing was refused");
}

TEST(AutomaticWidth, IsCheckedInEachBackbone) {
  const std::string four = "auto is 2097152 at a width of 524288";
  EXPECT_THAT(refusal("{backbone: mixer, patch: 4, depth: 1, width: 524288}"),
              HasSubstr("model.channel_hidden: " + four));
  EXPECT_THAT(refusal("{backbone: sparse_mlp, patch: 4, dense_blocks: 1, sparse_blocks: 0, width: "
                      "524288}"),
              HasSubstr("model.channel_hidden: " + four));
  EXPECT_THAT(text_refusal("{backbone: gpt2, depth: 1, heads: 8, width: 524288}"),
              HasSubstr("model.hidden: " + four));
  EXPECT_THAT(text_refusal("{backbone: gpt2, depth: 1, heads: 8, width: 524288, mlp: swiglu}"),
              HasSubstr("model.hidden: auto is 1398144 at a width of 524288"));
  EXPECT_THAT(text_refusal("{backbone: hspmn, depth: 1, heads: 8, kv_heads: 8, width: 524288}"),
              HasSubstr("model.hidden: " + four));
  EXPECT_THAT(
      refusal("{backbone: adaptive_attention, patch: 4, depth: 1, heads: 8, width: 1048576}",
              kImages, "{name: denoise}\n"),
      HasSubstr("model.hidden: auto is 2097152 at a width of 1048576"));
}

TEST(AutomaticWidth, OfExpertsFollowsTheirLayer) {
  const auto layer = [](const std::string& keys) {
    return refusal("{backbone: vit, patch: 4, depth: 1, heads: 8, width: 524288, hidden: 64, " +
                   keys + "}");
  };
  const std::string four = "auto is 2097152 at a width of 524288";
  EXPECT_THAT(layer("moe: {router: {name: top_k, k: 1}, experts: {count: 2}}"),
              HasSubstr("blocks.0.moe.experts.hidden: " + four));
  EXPECT_THAT(layer("moe: {router: {name: top_k, k: 1}, experts: {count: 2, hidden: 8}, shared: "
                    "{count: 1}}"),
              HasSubstr("blocks.0.moe.shared.hidden: " + four));
  EXPECT_THAT(layer("moe: {router: {name: top_k, k: 1}, experts: {count: 2, hidden: 8}}"),
              HasSubstr("nothing was refused"));
  EXPECT_THAT(layer("nexus: {experts: {count: 2}, slots: 1}"),
              HasSubstr("blocks.0.nexus.experts.hidden: " + four));
}

}  // namespace
}  // namespace shoal
