#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/build_model.h"
#include "tests/support/config_error.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using testing::config_error_of;
using ::testing::HasSubstr;
using testing::meta_context;

/// A denoiser of images of this shape, allocated nowhere.
std::shared_ptr<Task> denoiser(const std::string& keys, const ImageShape& image = {3, 32, 32}) {
  return testing::build_task(
      "model: {backbone: adaptive_attention" + keys + "}\ntask: {name: denoise}",
      {.source = "test", .image = image, .has_unit_pixels = true}, meta_context());
}

TEST(AdaptiveAttention, HasThePublishedParametersExactly) {
  const auto count = [](const std::string& keys) {
    return testing::count_parameters(*denoiser(keys));
  };
  EXPECT_EQ(count(""), 599689);
  EXPECT_EQ(count(", attention: {mixing: hard}"), 599689);
  EXPECT_EQ(count(", attention: {mixing: hard_shared_kv}"), 467593);
  EXPECT_EQ(count(", attention: null"), 285571);
  // All tokens in one of the experts, without a router.
  EXPECT_EQ(count(", attention: {mixing: hard, router: {name: forced, k: 1, load: one}}"), 582787);
  EXPECT_EQ(count(", final_norm: true"), 599945);
}

TEST(AdaptiveAttention, RefusesByName) {
  const auto error = [](const std::string& keys, const ImageShape& image = {3, 32, 32}) {
    return config_error_of([&] { (void)denoiser(keys, image); });
  };
  EXPECT_THAT(error(", patch: 5"), AllOf(HasSubstr("model.patch"), HasSubstr("32 x 32")));
  EXPECT_THAT(error("", {3, 32, 30}), AllOf(HasSubstr("model.patch"), HasSubstr("32 x 30")));
  EXPECT_THAT(error(", heads: 3"), HasSubstr("model.heads"));
  EXPECT_THAT(error(", patch: 0"), HasSubstr("model.patch"));
  EXPECT_THAT(error(", attention: {experts: [{k: 0}]}"), HasSubstr("model.attention.experts[0].k"));
  EXPECT_THAT(error(", attention: {experts: [{candidates: {from: window, window: 2}}]}"),
              HasSubstr("model.attention.experts[0].candidates.window"));
  EXPECT_EQ(error(", attention: {experts: [{k: 1000}]}"), "no error");
}

}  // namespace
}  // namespace shoal
