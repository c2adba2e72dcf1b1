#include "models/formats/image_stem.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/options/config_reader.h"

namespace shoal {
namespace {

constexpr int64_t kChannels = 3;

/// Square root of a square number; 0 for other numbers.
int64_t whole_root(int64_t number) {
  const auto root = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(number))));
  return root * root == number ? root : 0;
}

}  // namespace

ImageStem read_image_stem(const ForeignWeights& weights, const std::string& name,
                          int64_t num_patches) {
  const std::vector<int64_t>& shape = weights.shape_of(name + ".weight", 4);
  const int64_t side = whole_root(num_patches);
  Mistakes mistakes;
  if (shape[2] != shape[3]) {
    mistakes.add(fmt::format("patches of {} x {} pixels are not square", shape[2], shape[3]));
  }
  if (side == 0) mistakes.add(fmt::format("{} patches make no square image", num_patches));
  if (shape[1] != kChannels) {
    mistakes.add(
        fmt::format("images have {} channels, data sources here have {}", shape[1], kChannels));
  }
  mistakes.throw_if_any(fmt::format("'{}' is not supported:", weights.path()));
  return {shape[1], shape[2], shape[0], side * shape[2]};
}

Choice<DataSource> images_to_name(const ImageStem& stem, nlohmann::ordered_json keys) {
  keys["source"] = "image_folder";
  keys["path"] = "FOLDER";
  keys["image_size"] = stem.image_size;
  return config::load_options_text<DataOptions>(keys.dump(1), "the data of imported weights")
      .options.source;
}

}  // namespace shoal
