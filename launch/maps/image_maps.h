#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/model/build_model.h"
#include "launch/pages/picture.h"
#include "launch/weights/open_checkpoint.h"
#include "runtime/data/augment.h"
#include "runtime/data/batch.h"
#include "runtime/data/data_shape.h"

// C channels  H height  W width
namespace shoal {

/// Arrangement of tokens on an image.
struct TokenGrid {
  int64_t rows = 0, columns = 0;
  int64_t first = 0;  ///< token of the top left corner: 1 after a class token
};

/// Finds the grid of square patches of side p that fill the image from the top left: rows = height
/// / p, columns = width / p. Nothing if no p fits, with or without a class token.
std::optional<TokenGrid> find_token_grid(int64_t num_tokens, const ImageShape& image);
/// find_token_grid, with TORCH_CHECK that there is one.
TokenGrid grid_of_tokens(int64_t num_tokens, const ImageShape& image);

/// Options of draw_activation_maps and draw_expert_maps.
struct ImageMapsArguments {
  CheckpointChoice checkpoint;
  std::string folder = {};  ///< empty or missing
  int64_t images = 8;       ///< number of images, from the start of the validation split
  bool json = false;
};

/// A trained model of images, in this process alone, for drawing; its weights have to be loaded.
/// Cannot be moved, since the model points into `checkpoint`.
struct ImageModel {
  OpenedCheckpoint checkpoint;
  BuiltModel model;

  /// `pictures`: what is drawn, for messages. Throws Error (exit 2) if the data are not images.
  ImageModel(const CheckpointChoice& choice, const Environment& environment,
             const std::string& pictures);
  ImageModel(const ImageModel&) = delete;
};

/// Calls `use` with batches covering the first `num_images` of the validation split; `count` is the
/// number of the batch's images, from its first, that belong to them.
void for_first_images(const ImageModel& opened, int64_t num_images,
                      const std::function<void(const Batch& batch, int64_t count,
                                               const ImageTransform& transform)>& use);

/// Class names of a recipe's samples (DataSource::class_names).
std::vector<std::string> class_names_of(const Recipe& recipe);

/// Class of a batch's image `i`: its name, or `class 3` if unnamed; empty without labels.
std::string label_text(const Batch& batch, int64_t i, const std::vector<std::string>& class_names);

/// The image with its normalisation undone.
Picture plain_picture(const torch::Tensor& image_CHW, const ChannelStats& stats);

}  // namespace shoal
