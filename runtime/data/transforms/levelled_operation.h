#pragma once

#include <cstdint>

#include "runtime/data/transforms/pixel_operation.h"

namespace shoal {

/// How the level (strength) of an operation maps to its argument. Notes give, for levels 0 to 10,
/// enhancement factors (1 keeps the image), bits that posterise keeps, and thresholds of solarise.
enum class LevelScale {
  kPlain,       ///< RandAugment: factors 0.1 to 1.9, 0 to 4 bits, thresholds 0 to 256
  kIncreasing,  ///< timm's `inc1`: factors 1 to 1.9 or 1 to 0.1, 4 to 0 bits, thresholds 256 to 0
  kPaper,       ///< AutoAugment: as kPlain, but 4 to 8 bits
};

/// One step of a policy, RandAugment or AutoAugment: an operation with a strength.
struct LevelledOperation {
  PixelOperation operation;
  double probability = 0.5;
  double level = 10.0;  ///< strength on a scale of 10; called magnitude in timm
};

/// Returns the argument at step.level. `is_negative` reverses rotations, shears and translations;
/// with kIncreasing it makes factors fall below 1. Source: timm, data/auto_augment.py.
double argument_at(const LevelledOperation& step, LevelScale scale, bool is_negative);

/// Settings shared by a policy's operations.
struct PolicyStyle {
  LevelScale scale = LevelScale::kPlain;
  Interpolation interpolation = Interpolation::kBilinear;
};

/// Applies the operation with step.probability. Uses the draws with index first to first + 2.
void apply(const LevelledOperation& step, const PolicyStyle& style, const TransformDraws& draws,
           uint32_t first, EditedImage& image);

inline constexpr uint32_t kDrawsPerStep = 8;  ///< draws that a policy sets aside for each step

}  // namespace shoal
