#include "models/decoder/key_value_cache.h"

#include <algorithm>

// b sequences  S new tokens of each  N heads of keys and values  P positions  H head width
// E positions that are in use, new tokens included
namespace shoal {

DecodeStep::DecodeStep(const KeyValueCache& cache, int64_t new_tokens, torch::Device device)
    : begin_b_(cache.length_b) {
  const auto [least, most] = std::minmax_element(begin_b_.begin(), begin_b_.end());
  const bool has_sequences = least != begin_b_.end();
  const int64_t longest = has_sequences ? *most : 0;
  is_first_ = longest == 0;
  is_even_ = !has_sequences || *least == longest;
  end_ = longest + new_tokens;
  TORCH_CHECK(end_ <= cache.capacity(), "decode: the longest sequence has ", longest, " tokens, ",
              new_tokens, " more do not fit a cache of ", cache.capacity());
  const torch::Tensor begin_b1 = torch::tensor(begin_b_, torch::kInt64).unsqueeze(1).to(device);
  position_bS_ = begin_b1 + torch::arange(new_tokens, begin_b1.options());
  if (is_first_ || (is_even_ && new_tokens == 1)) return;
  const torch::Tensor key_E = torch::arange(end_, begin_b1.options());
  mask_b1SE_ = (key_E <= position_bS_.unsqueeze(2)).unsqueeze(1);
}

void DecodeStep::append(const torch::Tensor& new_bNSH, const torch::Tensor& held_bNPH) const {
  const int64_t new_tokens = new_bNSH.size(2);
  if (is_even_) {
    held_bNPH.narrow(2, end_ - new_tokens, new_tokens).copy_(new_bNSH);
    return;
  }
  for (size_t b = 0; b < begin_b_.size(); ++b) {
    const auto sequence = static_cast<int64_t>(b);
    held_bNPH[sequence].narrow(1, begin_b_[b], new_tokens).copy_(new_bNSH[sequence]);
  }
}

}  // namespace shoal
