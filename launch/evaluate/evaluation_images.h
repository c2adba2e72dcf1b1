#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/evaluate/evaluation.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// Request to draw pictures of the first samples of an evaluation: `shoal eval --images`.
struct ImagesRequest {
  std::string folder;  ///< folder to create, or an empty one; "": no pictures are wanted
  int64_t count = 16;  ///< number of samples
};

/// What was drawn.
struct DrawnImages {
  int64_t count = 0;                 ///< samples; fewer than requested if the split has fewer
  std::vector<std::string> columns;  ///< titles of a sample's pictures, from left to right
};

/// Draws what a model makes of a split's first samples: image-000.png and so on, each with the
/// pictures that the task draws of one sample side by side (such as a clean, a noisy and a restored
/// image), and contact_sheet.png with all of them. Magnifies small pictures. `step`: optimizer
/// steps that the model was trained for. Collective; rank 0 writes through `files`. Throws Error
/// (exit 2) if the task draws none or the folder is not empty, StorageError, DataError.
DrawnImages draw_evaluation_images(const ImagesRequest& request, const EvaluationParts& parts,
                                   int64_t step, FileSystem& files);

}  // namespace shoal
