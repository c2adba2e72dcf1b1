#include "runtime/random/row_ids.h"

namespace shoal {

torch::Tensor row_ids(const StepContext& step, int64_t rows_per_sample) {
  constexpr int kViewShift = 56;
  torch::Tensor first_b = step.sample_b * rows_per_sample;
  if (step.view_b.defined()) {
    first_b = first_b.bitwise_or(step.view_b.bitwise_left_shift(kViewShift));
  }
  const torch::Tensor row_R = torch::arange(rows_per_sample, first_b.options());
  return (first_b.unsqueeze(1) + row_R).flatten();
}

}  // namespace shoal
