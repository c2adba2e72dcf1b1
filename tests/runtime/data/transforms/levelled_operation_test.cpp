#include "runtime/data/transforms/levelled_operation.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

double argument(PixelOperation operation, double level, LevelScale scale = LevelScale::kPlain,
                bool is_negative = false) {
  return argument_at({operation, 1.0, level}, scale, is_negative);
}

TEST(LevelledOperation, ReachesThePapersExtremesAtLevelTen) {
  EXPECT_DOUBLE_EQ(argument(PixelOperation::kRotate, 10), 30.0);
  EXPECT_DOUBLE_EQ(argument(PixelOperation::kRotate, 10, LevelScale::kPlain, true), -30.0);
  EXPECT_DOUBLE_EQ(argument(PixelOperation::kShearX, 10), 0.3);
  EXPECT_DOUBLE_EQ(argument(PixelOperation::kTranslateY, 10), 0.45);
  EXPECT_DOUBLE_EQ(argument(PixelOperation::kSolariseAdd, 10), 110.0);
  EXPECT_DOUBLE_EQ(argument(PixelOperation::kColour, 10), 1.9);
  EXPECT_DOUBLE_EQ(argument(PixelOperation::kColour, 0), 0.1);
  EXPECT_DOUBLE_EQ(argument(PixelOperation::kPosterise, 10), 4.0);
  EXPECT_DOUBLE_EQ(argument(PixelOperation::kSolarise, 10), 256.0);
}

TEST(LevelledOperation, CountsBitsAndThresholdsInWholeNumbersAsTimm) {
  EXPECT_DOUBLE_EQ(argument(PixelOperation::kPosterise, 9), 3.0);
  EXPECT_DOUBLE_EQ(argument(PixelOperation::kPosterise, 9, LevelScale::kIncreasing), 1.0);
  EXPECT_DOUBLE_EQ(argument(PixelOperation::kPosterise, 9, LevelScale::kPaper), 7.0);
  EXPECT_DOUBLE_EQ(argument(PixelOperation::kSolarise, 9), 230.0);
  EXPECT_DOUBLE_EQ(argument(PixelOperation::kSolarise, 9, LevelScale::kIncreasing), 26.0);
  EXPECT_DOUBLE_EQ(argument(PixelOperation::kSolariseAdd, 9), 99.0);
  EXPECT_DOUBLE_EQ(argument(PixelOperation::kSolariseAdd, 15), 128.0);
}

TEST(LevelledOperation, ChangesNothingAtLevelZeroWhereEffectsIncrease) {
  for (const PixelOperation operation : {PixelOperation::kColour, PixelOperation::kContrast,
                                         PixelOperation::kBrightness, PixelOperation::kSharpness}) {
    EXPECT_EQ(argument(operation, 0, LevelScale::kIncreasing), 1.0);
    EXPECT_NEAR(argument(operation, 10, LevelScale::kIncreasing), 1.9, 1e-12);
    EXPECT_NEAR(argument(operation, 10, LevelScale::kIncreasing, true), 0.1, 1e-12);
    EXPECT_EQ(argument(operation, 20, LevelScale::kIncreasing, true), 0.1);
  }
  EXPECT_EQ(argument(PixelOperation::kSolarise, 0, LevelScale::kIncreasing), 256.0);
  for (const PixelOperation operation :
       {PixelOperation::kRotate, PixelOperation::kShearX, PixelOperation::kShearY,
        PixelOperation::kTranslateX, PixelOperation::kTranslateY, PixelOperation::kSolariseAdd}) {
    EXPECT_EQ(argument(operation, 0), 0.0);
  }
}

}  // namespace
}  // namespace shoal
