#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/augment.h"
#include "runtime/options/config_reader.h"

/// Transforms as a recipe names them, and images for them.
namespace shoal::testing {

inline std::vector<TransformOptions> transforms_of(const std::string& list) {
  return config::load_options_text<AugmentOptions>("transforms: " + list, "r.yaml")
      .options.transforms;
}

inline TransformChain chain_of(const std::string& list, int64_t channels = 3) {
  return TransformChain(transforms_of(list), channels,
                        {std::vector<double>(static_cast<size_t>(channels), 0.5)});
}

/// Channels, rows and columns that differ.
inline EditedImage test_image(ImageShape shape) {
  EditedImage image{shape, std::vector<uint8_t>(static_cast<size_t>(shape.bytes()))};
  for (size_t i = 0; i < image.pixel_CHW.size(); ++i) {
    image.pixel_CHW[i] = static_cast<uint8_t>((i * i * 7 + i * 41 + 13) % 251);
  }
  return image;
}

inline std::vector<uint8_t> transformed(const TransformChain& chain, EditedImage image,
                                        const SampleView& view) {
  chain.apply(image, view);
  return image.pixel_CHW;
}

}  // namespace shoal::testing
