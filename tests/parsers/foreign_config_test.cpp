#include "models/formats/foreign_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    const ForeignConfig config(text, "config.json");
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "none";
}

std::string nested(int depth) {
  return "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
}

TEST(ForeignConfig, IsNestedToABound) {
  EXPECT_EQ(refusal(nested(30)), "none");
  for (const int depth : {40, 1'000'000}) {
    EXPECT_THAT(refusal(nested(depth)), HasSubstr("config.json': has more than 32 levels"));
  }
  EXPECT_THAT(refusal(std::string(1'000'000, '[')), HasSubstr("levels"));
}

TEST(ForeignConfig, HasABoundedNumberOfValues) {
  std::string text = "{\"a\":[1";
  while (text.size() < (size_t{2} << 20)) text += ",1";
  EXPECT_THAT(refusal(text + "]}"), HasSubstr("has more than 262144 values"));
}

}  // namespace
}  // namespace shoal
