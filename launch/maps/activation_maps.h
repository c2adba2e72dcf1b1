#pragma once

#include <torch/types.h>

#include <cstdint>

#include "launch/maps/activation_page.h"
#include "launch/maps/image_maps.h"

// B images  N tokens of an image  U units  s slots of a unit
namespace shoal {

/// `shoal inspect PATH --activation-maps FOLDER [--images N] [--json] [key=value …]`, whose options
/// are in `arguments`: shows which image tokens a model's Nexus layers (paper: OneSparse) mix into
/// the slots of their experts and of their memory units (learned keys with values), and how evenly.
/// Writes a page with pictures into the folder, and a table or one JSON object to `out`. Runs in
/// one process. Throws Error (exit 2) for a model without Nexus layers and for a folder that is not
/// empty. Source: OneSparse, supplement, figure A1.
ExitCode draw_activation_maps(const ImageMapsArguments& arguments, const Environment& environment,
                              std::ostream& out);

/// Map of image `image` of a batch for units of one kind: for each token of `grid` the mean
/// dispatch weight over units and slots, relative to uniform attention; and the evenness for the
/// image. `unit_BNUs`: dispatch weights, the share of each token in a slot, [B, N, units, s].
ActivationMap activation_map(const torch::Tensor& unit_BNUs, int64_t image, const TokenGrid& grid);

}  // namespace shoal
