#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/evaluate/evaluation.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// Request to draw pictures of the first evaluated samples.
struct ImagesRequest {
  std::string folder;  ///< empty or new folder; "": draws nothing
  int64_t count = 16;
};

struct DrawnImages {
  int64_t count = 0;
  std::vector<std::string> columns;  ///< titles, from left to right
};

/// Draws the first evaluated samples: image-000.png and so on, each with the task's pictures of one
/// sample side by side, and contact_sheet.png with all of them. Small images are magnified by an
/// integer. Collective; rank 0 writes. Throws Error (exit 2) if the task has no pictures or the
/// folder is not empty, StorageError, DataError.
DrawnImages draw_evaluation_images(const ImagesRequest& request, const EvaluationParts& parts,
                                   int64_t step, FileSystem& files);

}  // namespace shoal
