#pragma once

#include <cstdint>

#include "launch/maps/image_maps.h"

namespace shoal {

/// Least number of images that are measured, if there are as many.
inline constexpr int64_t kMeasuredImages = 512;

/// `shoal inspect PATH --expert-maps FOLDER [--images N] [key=value …]`: draws the first unit of
/// each patch of validation images, for each MoE layer whose rows are patches (also after a class
/// token): a page with pictures in the folder, and on `out`, as a table or one JSON object, which
/// regions choose which unit, over the first kMeasuredImages images or all that are drawn. Regions
/// are measured on the data's images, without a task's noise. In this process alone. Throws Error
/// (exit 2) for a model without such layers and for a folder that is not empty. Source: the
/// adaptive sparse-attention denoiser, section 5 (sky, edges, texture).
ExitCode draw_expert_maps(const ImageMapsArguments& arguments, const Environment& environment,
                          std::ostream& out);

}  // namespace shoal
