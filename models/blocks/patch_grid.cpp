#include "models/blocks/patch_grid.h"

#include <string>

#include "runtime/base/error.h"

namespace shoal {

int64_t num_patches(const ImageShape& image, int64_t patch) {
  if (image.height % patch != 0 || image.width % patch != 0) {
    throw ConfigError("model.patch: " + std::to_string(patch) + " does not divide images of " +
                      std::to_string(image.height) + " x " + std::to_string(image.width) +
                      " pixels");
  }
  return (image.height / patch) * (image.width / patch);
}

}  // namespace shoal
