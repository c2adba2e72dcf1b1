#pragma once

#include <cstdint>

#include "launch/maps/image_maps.h"

namespace shoal {

/// Minimum number of images that are measured, if the split has as many.
inline constexpr int64_t kMeasuredImages = 512;

/// `shoal inspect PATH --expert-maps FOLDER [--images N] [key=value …]`: shows the first expert of
/// each patch of validation images, for each MoE layer whose rows are patches (optionally after a
/// class token). Writes a page with pictures into the folder, and to `out` a table or one JSON
/// object that tells which image regions are routed to which expert, over the first kMeasuredImages
/// images or as many as are drawn. Regions are measured on the images without a task's noise. Runs
/// in one process. Throws Error (exit 2) for a model without such layers and for a folder that is
/// not empty.
/// Source: the adaptive sparse-attention denoiser, section 5 (sky, edges, texture).
ExitCode draw_expert_maps(const ImageMapsArguments& arguments, const Environment& environment,
                          std::ostream& out);

}  // namespace shoal
