#include "moe/routing/routing.h"

#include <ATen/ops/nonzero_static.h>

namespace shoal {

TokenContext make_token_context(const StepContext& step, uint64_t layer, int64_t rows_per_sample) {
  const int64_t group = step.samples_per_group, num_samples = step.sample_b.size(0);
  TORCH_CHECK(group >= 1, "samples_per_group must be positive, got ", group);
  const torch::Tensor& length_b = step.length_b;
  TORCH_CHECK(!length_b.defined() || (length_b.is_cpu() && length_b.numel() == num_samples),
              "lengths must be on the host, one of each of ", num_samples, " samples");
  TokenContext context{step, layer, rows_per_sample, {0}, {0}};
  for (int64_t sample = 0; sample < num_samples; ++sample) {
    const int64_t tokens =
        length_b.defined() ? length_b.const_data_ptr<int64_t>()[sample] : rows_per_sample;
    TORCH_CHECK(tokens >= 0 && tokens <= rows_per_sample, "a sample has ", rows_per_sample,
                " rows, but a length of ", tokens);
    context.sample_offsets.push_back(context.num_tokens() + tokens);
    const bool ends_group = (sample + 1) % group == 0 || sample + 1 == num_samples;
    if (ends_group) context.group_offsets.push_back(context.num_tokens());
  }
  if (context.num_tokens() < num_samples * rows_per_sample) {
    const torch::Tensor is_token = token_mask(step, rows_per_sample).flatten();
    context.row_T = at::nonzero_static(is_token, context.num_tokens()).squeeze(1);
  }
  return context;
}

torch::Tensor TokenContext::put_back(const torch::Tensor& x_TD) const {
  if (!row_T.defined()) return x_TD;
  return x_TD.new_zeros({num_samples() * rows_per_sample, x_TD.size(1)}).index_copy(0, row_T, x_TD);
}

}  // namespace shoal
