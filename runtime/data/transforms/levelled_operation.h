#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "runtime/data/transforms/pixel_operation.h"

namespace shoal {

/// Interpolation of a policy's warps.
enum class WarpInterpolation { kNearest, kBilinear, kBicubic, kRandom };

template <>
struct EnumNames<WarpInterpolation> {
  static constexpr std::array names{std::pair{WarpInterpolation::kNearest, "nearest"},
                                    std::pair{WarpInterpolation::kBilinear, "bilinear"},
                                    std::pair{WarpInterpolation::kBicubic, "bicubic"},
                                    std::pair{WarpInterpolation::kRandom, "random"}};
};

/// Meaning of levels, where implementations differ.
enum class LevelScale {
  kPlain,       ///< RandAugment: from one extreme (black, grey, inverted) to the other
  kIncreasing,  ///< timm's `inc1`: the effect grows with the level
  kPaper,       ///< AutoAugment: posterise keeps 4 to 8 bits
};

/// One step of RandAugment or AutoAugment.
struct LevelledOperation {
  PixelOperation operation;
  double probability = 0.5;
  double level = 10.0;  ///< of 10; called magnitude in timm
};

/// The operation's argument at a level. `is_negative`: the opposite direction or, on increasing
/// scales, a factor below 1. Source: timm, data/auto_augment.py.
double argument_at(const LevelledOperation& step, LevelScale scale, bool is_negative);

/// Settings shared by a policy's operations.
struct PolicyStyle {
  LevelScale scale = LevelScale::kPlain;
  WarpInterpolation interpolation = WarpInterpolation::kBilinear;
};

/// Applies the operation with its probability. Takes the draws from `first` on, kDrawsPerStep.
void apply(const LevelledOperation& step, const PolicyStyle& style, const TransformDraws& draws,
           uint32_t first, EditedImage& image);

inline constexpr uint32_t kDrawsPerStep = 8;

}  // namespace shoal
