#pragma once

#include <torch/types.h>

#include "runtime/data/data_shape.h"
#include "runtime/random/step_context.h"

// b samples on this rank  V views  C channels  H height  W width  S tokens  N inputs  M targets
namespace shoal {

/// Label of tokens that losses and scores ignore.
inline constexpr int64_t kNoLabel = -100;

/// One rank's part of a micro-batch, which a loader makes for a task: b samples in the order of the
/// data stream; b may be 0. Routing groups, the samples among which tokens compete for experts, are
/// whole. Tensors that the source's DataShape lacks are undefined.
struct Batch {
  torch::Tensor image_bVCHW;  ///< normalised, in the compute dtype; views differ by augmentation
  torch::Tensor token_bS;     ///< int64 ids; S of the longest sample here, 0 after a sample's end
  torch::Tensor length_b;     ///< int64, on the host: tokens of each sample; if undefined, S each
  torch::Tensor token_label_bS;  ///< int64; for text the next token; kNoLabel is ignored
  torch::Tensor value_bN;        ///< in the compute dtype
  torch::Tensor label_b;         ///< int64
  torch::Tensor target_bM;       ///< float32, or float64 if that is the compute dtype
  StepContext context;  ///< seed, stream positions and counts for layers; callers set its `step`
  TextCounts text;      ///< in evaluation of text: counts of the whole split
  double wait_s = 0.0;  ///< seconds that the loader's caller waited for this batch

  /// The images of one view: [b, C, H, W].
  torch::Tensor image_bCHW(int64_t view = 0) const { return image_bVCHW.select(1, view); }
};

}  // namespace shoal
