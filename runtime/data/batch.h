#pragma once

#include <torch/types.h>

#include "runtime/data/data_shape.h"
#include "runtime/random/step_context.h"

// b samples on this rank  V views  C channels  H height  W width  S tokens  N and M numbers
namespace shoal {

/// The label of a token that no loss or score counts.
inline constexpr int64_t kNoLabel = -100;

/// One rank's part of a micro-step, as the loader makes it and a task takes it: b samples in stream
/// order, whole routing groups; b may be 0. What the source's DataShape lacks is undefined.
struct Batch {
  torch::Tensor image_bVCHW;  ///< normalised, in the dtype to compute in; views differ by augment
  torch::Tensor token_bS;     ///< int64; S of the longest sample here, 0 from a sample's length on
  torch::Tensor length_b;     ///< int64, on the host: tokens of each sample; undefined: all have S
  torch::Tensor token_label_bS;  ///< int64: for text the next token; kNoLabel: not scored
  torch::Tensor value_bN;        ///< in the dtype to compute in
  torch::Tensor label_b;         ///< int64
  torch::Tensor target_bM;       ///< float32, float64 where that is computed in
  StepContext context;  ///< complete but for the step; sample_b holds positions in the stream
  TextCounts text;      ///< in evaluation: of the whole split, where it is text
  double wait_s = 0.0;  ///< how long the loader's caller waited for it, seconds

  /// The images as one view sees them: [b, C, H, W].
  torch::Tensor image_bCHW(int64_t view = 0) const { return image_bVCHW.select(1, view); }
};

}  // namespace shoal
