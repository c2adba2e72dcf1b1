#pragma once

#include <cstdint>

#include "launch/maps/image_maps.h"

namespace shoal {

/// How many images are measured at least, as far as there are.
inline constexpr int64_t kMeasuredImages = 512;

/// `shoal inspect PATH --expert-maps FOLDER [--images N] [key=value …]`: draws which unit each
/// patch of validation images is routed to first, for each MoE layer whose rows are patches (or
/// patches behind a class token): a page with pictures in the folder, and as a table or one JSON
/// object on `out` which regions choose which unit, over the first kMeasuredImages images or all
/// that are drawn. Regions are measured on the images as the data has them, without a task's noise.
/// On this process alone. Throws Error (exit 2) for a model without such layers and for a folder
/// that is not empty. Source: the adaptive sparse-attention denoiser, section 5 (sky, edges,
/// texture).
ExitCode draw_expert_maps(const ImageMapsArguments& arguments, const Environment& environment,
                          std::ostream& out);

}  // namespace shoal
