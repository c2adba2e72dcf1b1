#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace shoal {
namespace {

template <class Real>
Real ordered(Real score) {
  return std::isnan(score) ? -std::numeric_limits<Real>::infinity() : score;
}

/// One row: insertion into a sorted list of k, which for small k beats every heap.
template <class Real>
void top_k_row(const Real* score_U, int64_t num_units, int64_t k, Real* best_K, int64_t* unit_K) {
  int64_t found = 0;
  for (int64_t unit = 0; unit < num_units; ++unit) {
    const Real score = ordered(score_U[unit]);
    if (found == k && !(score > best_K[k - 1])) continue;
    int64_t place = found < k ? found++ : k - 1;
    for (; place > 0 && score > best_K[place - 1]; --place) {
      best_K[place] = best_K[place - 1];
      unit_K[place] = unit_K[place - 1];
    }
    best_K[place] = score;
    unit_K[place] = unit;
  }
}

torch::Tensor top_k_cpu(const torch::Tensor& score_TU, int64_t k) {
  const int64_t num_tokens = score_TU.size(0), num_units = score_TU.size(1);
  torch::Tensor unit_TK = torch::empty({num_tokens, k}, torch::kInt64);
  int64_t* unit = unit_TK.data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES(score_TU.scalar_type(), "top_k", [&] {
    const scalar_t* score = score_TU.const_data_ptr<scalar_t>();
    at::parallel_for(0, num_tokens, 4096, [&](int64_t first, int64_t last) {
      std::vector<scalar_t> best_K(static_cast<size_t>(k));
      for (int64_t t = first; t < last; ++t) {
        top_k_row(score + t * num_units, num_units, k, best_K.data(), unit + t * k);
      }
    });
  });
  return unit_TK;
}

template <class Real>
void mark_lowest_of(const Real* score_T, int64_t first, int64_t last, int64_t count, bool* mark_T) {
  std::vector<int64_t> token(static_cast<size_t>(last - first));
  for (int64_t t = first; t < last; ++t) token[static_cast<size_t>(t - first)] = t;
  const auto drops_before = [&](int64_t a, int64_t b) {
    const Real score_a = ordered(score_T[a]), score_b = ordered(score_T[b]);
    return score_a != score_b ? score_a < score_b : a > b;
  };
  const auto middle = token.begin() + std::min<int64_t>(count, last - first);
  std::nth_element(token.begin(), middle, token.end(), drops_before);
  std::for_each(token.begin(), middle, [&](int64_t t) { mark_T[t] = true; });
}

torch::Tensor mark_lowest_cpu(const torch::Tensor& score_T, c10::IntArrayRef offsets,
                              c10::IntArrayRef counts) {
  torch::Tensor mark_T = torch::zeros({score_T.size(0)}, torch::kBool);
  bool* mark = mark_T.data_ptr<bool>();
  AT_DISPATCH_FLOATING_TYPES(score_T.scalar_type(), "mark_lowest", [&] {
    const scalar_t* score = score_T.const_data_ptr<scalar_t>();
    at::parallel_for(0, static_cast<int64_t>(counts.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t g = begin; g < end; ++g) {
        mark_lowest_of(score, offsets[g], offsets[g + 1], counts[g], mark);
      }
    });
  });
  return mark_T;
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) {
  m.impl("top_k", top_k_cpu);
  m.impl("mark_lowest", mark_lowest_cpu);
}

}  // namespace shoal
