#include "models/decoder/key_value_cache.h"

#include <algorithm>

// b sequences  S new tokens of each  N heads of keys and values  P positions  H head width
// E positions that are in use, new tokens included
namespace shoal {

DecodeStep::DecodeStep(const KeyValueCache& cache, const NewTokens& tokens)
    : begin_b_(cache.length_b), count_b_(tokens.count_b) {
  TORCH_CHECK(tokens.token_bS.dim() == 2 && tokens.token_bS.size(0) == std::ssize(begin_b_),
              "decode: tokens are ", tokens.token_bS.sizes(), ", the cache has ", begin_b_.size(),
              " sequences");
  const int64_t new_tokens = tokens.token_bS.size(1);
  if (count_b_.empty()) count_b_.assign(begin_b_.size(), new_tokens);
  TORCH_CHECK(
      count_b_.size() == begin_b_.size() &&
          std::ranges::all_of(count_b_, [&](int64_t n) { return n >= 0 && n <= new_tokens; }),
      "decode: ", count_b_.size(), " counts of new tokens for ", begin_b_.size(),
      " sequences, each from 0 to ", new_tokens);
  const auto [least, most] = std::ranges::minmax_element(begin_b_);
  const bool has_sequences = least != begin_b_.end();
  const int64_t longest = has_sequences ? *most : 0;
  for (size_t b = 0; b < begin_b_.size(); ++b) end_ = std::max(end_, begin_b_[b] + count_b_[b]);
  TORCH_CHECK(end_ <= cache.capacity(), "decode: the longest sequence would have ", end_,
              " tokens, which do not fit a cache of ", cache.capacity());
  const auto is_whole = [&](int64_t count) { return count == new_tokens; };
  is_first_ = longest == 0;
  is_even_ = (!has_sequences || *least == longest) && std::ranges::all_of(count_b_, is_whole);
  const auto to_column = [&](const std::vector<int64_t>& values) {
    return torch::tensor(values, torch::kInt64).unsqueeze(1).to(tokens.token_bS.device());
  };
  count_b1_ = to_column(count_b_);
  const torch::Tensor begin_b1 = to_column(begin_b_);
  // Positions of padding are clamped to lie within the cache.
  position_bS_ = (begin_b1 + torch::arange(new_tokens, begin_b1.options()))
                     .clamp_max(std::max<int64_t>(end_ - 1, 0));
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
    held_bNPH[sequence]
        .narrow(1, begin_b_[b], count_b_[b])
        .copy_(new_bNSH[sequence].narrow(1, 0, count_b_[b]));
  }
}

void DecodeStep::advance(KeyValueCache& cache) const {
  for (size_t b = 0; b < count_b_.size(); ++b) cache.length_b[b] = begin_b_[b] + count_b_[b];
}

}  // namespace shoal
