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

/// How tokens lie on an image.
struct TokenGrid {
  int64_t rows = 0, columns = 0;
  int64_t first = 0;  ///< token of the top left corner: 1 behind a class token
};

/// Patches of equal side p fill the image from the top left: rows = height / p, columns = width /
/// p. Nothing if there is no such p, with or without a class token.
std::optional<TokenGrid> find_token_grid(int64_t num_tokens, const ImageShape& image);
/// TORCH_CHECK that there is one.
TokenGrid grid_of_tokens(int64_t num_tokens, const ImageShape& image);

/// What draw_activation_maps and draw_expert_maps are asked for.
struct ImageMapsArguments {
  CheckpointChoice checkpoint;
  std::string folder = {};  ///< empty, or not there yet
  int64_t images = 8;       ///< the first ones of the validation split
  bool json = false;
};

/// A trained model of images, on this process alone, to draw pictures of; its weights are still to
/// be loaded. It stays in place: the model points into `checkpoint`.
struct ImageModel {
  OpenedCheckpoint checkpoint;
  BuiltModel model;

  /// `pictures` is what is to be drawn. Throws Error (exit 2) if the data are no images.
  ImageModel(const CheckpointChoice& choice, const Environment& environment,
             const std::string& pictures);
  ImageModel(const ImageModel&) = delete;
};

/// Calls `use` with batches until `num_images` of the validation split were there, and how many of
/// the batch's images, from the first on, are among them.
void for_first_images(const ImageModel& opened, int64_t num_images,
                      const std::function<void(const Batch& batch, int64_t count,
                                               const ImageTransform& transform)>& use);

/// What the labels of a recipe's samples are called (DataSource::class_names).
std::vector<std::string> class_names_of(const Recipe& recipe);

/// The class of a batch's image `i`: its name, or `class 3` where it has none; empty without
/// labels.
std::string label_text(const Batch& batch, int64_t i, const std::vector<std::string>& class_names);

/// The image as it was before it was normalised.
Picture plain_picture(const torch::Tensor& image_CHW, const ChannelStats& stats);

}  // namespace shoal
