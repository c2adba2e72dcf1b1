#pragma once

#include <cstdint>

#include "launch/maps/image_maps.h"

namespace shoal {

/// Minimum number of images that are measured, if the split has as many.
inline constexpr int64_t kMeasuredImages = 512;

/// `shoal inspect PATH --expert-maps FOLDER [--images N] [key=value …]`: shows what experts
/// specialise in. Writes a page into the folder with pictures of N validation images: for each MoE
/// layer whose tokens are patches (a class token may come first), the first expert that each patch
/// is routed to. Prints to `out`, as a table or one JSON object, features of the image regions that
/// each expert gets (brightness, contrast, edges, position), measured over the first
/// kMeasuredImages images, or N if that is more, before a task adds noise. Runs in one process.
/// Throws Error (exit 2) for a model without such layers and for a folder that is not empty.
/// Source: "Adaptive Sparse Attention MoE Architecture" (the denoiser), section 5.
ExitCode draw_expert_maps(const ImageMapsArguments& arguments, const Environment& environment,
                          std::ostream& out);

}  // namespace shoal
