#include "launch/maps/image_maps.h"

#include <fmt/format.h>

#include <algorithm>

#include "launch/data/recipe_source.h"
#include "launch/step/session.h"
#include "runtime/data/loader/loader.h"

// C channels  H height  W width
namespace shoal {
namespace {

DataShape shape_of_images(const Recipe& recipe, const std::string& pictures) {
  DataShape shape = make_source(recipe)->shape();
  if (shape.image) return shape;
  throw Error(ExitCode::kUsage, fmt::format("{} are drawn on images, data.source {} gives {}",
                                            pictures, shape.source, shape.text()));
}

std::string label_text(const Batch& batch, int64_t i, const std::vector<std::string>& class_names) {
  if (!batch.label_b.defined()) return "";
  const auto label = batch.label_b[i].item<int64_t>();
  if (label >= 0 && label < std::ssize(class_names)) return class_names[static_cast<size_t>(label)];
  return fmt::format("class {}", label);
}

/// Undoes normalisation.
Picture plain_picture(const torch::Tensor& image_CHW, const ChannelStats& stats) {
  const auto per_channel = [](const std::vector<double>& values) {
    return torch::tensor(values, torch::kFloat64).view({-1, 1, 1});
  };
  return picture_of(image_CHW.to(torch::kCPU, torch::kFloat64) * per_channel(stats.std) +
                    per_channel(stats.mean));
}

}  // namespace

std::optional<TokenGrid> find_token_grid(int64_t num_tokens, const ImageShape& image) {
  for (const int64_t first : {0, 1}) {
    for (int64_t side = 1; side <= std::min(image.height, image.width); ++side) {
      const int64_t rows = image.height / side, columns = image.width / side;
      if (rows * columns == num_tokens - first) return TokenGrid{rows, columns, first};
    }
  }
  return std::nullopt;
}

ImageModel::ImageModel(const CheckpointChoice& choice, const Environment& environment,
                       const std::string& pictures)
    : checkpoint(open_checkpoint_alone(choice, environment)),
      model(build_model(checkpoint.recipe, shape_of_images(checkpoint.recipe, pictures),
                        {&checkpoint.grid, torch::kCPU})) {}

void for_first_images(const ImageModel& opened, int64_t num_images,
                      const std::function<void(const Batch& batch, const ImageShape& shape,
                                               const LabelledImages& first)>& use) {
  const torch::NoGradGuard no_grad;
  const Recipe& recipe = opened.checkpoint.recipe;
  const OpenSplit data = open_split(make_source(recipe), Split::kValid);
  const std::vector<std::string> class_names = data.source->class_names();
  const LoaderSettings settings = loader_settings(recipe, data, opened.checkpoint.grid);
  const ImageTransform& transform = settings.images.value();
  EvalLoader loader(*data.samples, settings);
  while (num_images > 0) {
    std::optional<Batch> batch = loader.next();
    if (!batch) break;
    batch->context.step = opened.checkpoint.manifest.step;
    const int64_t count = std::min(batch->context.sample_b.size(0), num_images);
    num_images -= count;
    const torch::Tensor image_bCHW = batch->image_bCHW();
    LabelledImages first;
    for (int64_t i = 0; i < count; ++i) {
      first.images.push_back(plain_picture(image_bCHW[i], transform.stats));
      first.labels.push_back(label_text(*batch, i, class_names));
    }
    use(*batch, transform.shape, first);
  }
}

}  // namespace shoal
