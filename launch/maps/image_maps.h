#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "launch/model/build_model.h"
#include "launch/pages/picture.h"
#include "launch/weights/open_checkpoint.h"
#include "runtime/data/batch.h"
#include "runtime/data/data_shape.h"

namespace shoal {

/// Arrangement of an image's tokens in rows and columns of patches.
struct TokenGrid {
  int64_t rows = 0, columns = 0;
  int64_t first = 0;  ///< index of the top left token: 1 after a class token
};

/// Finds the patch side p that divides the image into these tokens, rows = height / p, columns =
/// width / p, with or without a class token. Returns nullopt if there is no such p.
std::optional<TokenGrid> find_token_grid(int64_t num_tokens, const ImageShape& image);

/// Arguments of draw_activation_maps (image tokens that Nexus layers, OneSparse's soft MoE layers,
/// mix) and draw_expert_maps (experts that image patches are routed to).
struct ImageMapsArguments {
  CheckpointChoice checkpoint;
  std::string folder = {};  ///< empty or new folder
  int64_t images = 8;       ///< number of images, from the start of the validation split
  bool json = false;
};

/// `shoal inspect PATH --expert-maps FOLDER [--images N] [key=value …]`: shows what experts
/// specialise in. Writes a page into the folder with pictures of N validation images: for each MoE
/// layer whose tokens are patches (a class token may come first), the first expert that each patch
/// is routed to. Prints to `out`, as a table or one JSON object, features of the image regions that
/// each expert gets (brightness, contrast, edges, position), measured over the first 512 images, or
/// N if that is more, before a task adds noise. Runs in one process. Throws Error (exit 2) for a
/// model without such layers and for a folder that is not empty.
/// Source: "Adaptive Sparse Attention MoE Architecture" (the denoiser), section 5.
ExitCode draw_expert_maps(const ImageMapsArguments& arguments, const Environment& environment,
                          std::ostream& out);

/// A checkpoint's model of images, which draw_expert_maps and draw_activation_maps run in one
/// process. The caller loads its weights (load_model). Not copyable or movable, since `model`
/// points into `checkpoint`.
struct ImageModel {
  OpenedCheckpoint checkpoint;
  BuiltModel model;

  /// `environment`: for `${env:X}` in the recipe. `pictures` names the drawing in errors. Throws
  /// Error (exit 2) if the data are not images, and as open_checkpoint_alone.
  ImageModel(const CheckpointChoice& choice, const Environment& environment,
             const std::string& pictures);
  ImageModel(const ImageModel&) = delete;
};

/// Images without normalisation.
struct LabelledImages {
  std::vector<Picture> images;
  /// Class names, or `class 3` without a name (DataSource::class_names); "" without labels.
  std::vector<std::string> labels;
};

/// Calls `use` with batches of the validation split until `num_images` images are covered. `shape`:
/// of one image. `first`: the first images of the batch, as many as are needed.
void for_first_images(const ImageModel& opened, int64_t num_images,
                      const std::function<void(const Batch& batch, const ImageShape& shape,
                                               const LabelledImages& first)>& use);

}  // namespace shoal
