#include "moe/nexus/kernels/memory_lookup_cuda.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/searchsorted.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include "moe/kernels/row_top_k_cuda.h"
#include "moe/kernels/unit_rows.h"
#include "runtime/device/current_stream_cuda.h"
#include "runtime/device/real_types.h"

// R rows  D width  K keys of a unit  k keys chosen per row  u units  H = R k hits
namespace shoal {
namespace {

using torch::Tensor;

constexpr double kDoubleInfinity = std::numeric_limits<double>::infinity();

struct Lookup {
  Tensor keys, values, end_u, scale;
  int64_t num_rows, k;

  template <class Real>
  memory_lookup_cuda::Tables<Real> tables() const {
    return {keys.const_data_ptr<Real>(),
            values.const_data_ptr<Real>(),
            const_data_or_null<Real>(scale),
            end_u.const_data_ptr<int32_t>(),
            static_cast<int>(keys.size(0)),
            num_rows,
            keys.size(1),
            keys.size(2),
            k};
  }
};

/// Finds more choices than the kernel can, by a stable sort. Places without a score above minus
/// infinity hold the keys 0, 1, ..., as on the CPU.
void choose_sorted(const Tensor& score_RK, Tensor key_Rk, Tensor best_Rk) {
  const int64_t k = key_Rk.size(1);
  const Tensor ordered = score_RK.masked_fill(score_RK.isnan(), -kDoubleInfinity).add_(0.0);
  const auto [sorted, order] = ordered.sort(/*stable=*/true, /*dim=*/1, /*descending=*/true);
  best_Rk.copy_(sorted.narrow(1, 0, k));
  const Tensor is_empty = best_Rk.eq(-kDoubleInfinity);
  const Tensor num_found = is_empty.logical_not().sum(1, /*keepdim=*/true);
  const Tensor place = at::arange(k, key_Rk.options());
  key_Rk.copy_(torch::where(is_empty, place - num_found, order.narrow(1, 0, k)));
}

template <class Real>
void choose(const Tensor& score_RK, Tensor key_Rk, Tensor best_Rk) {
  const int64_t k = key_Rk.size(1);
  if (k > top_k_cuda::kMostChoices) return choose_sorted(score_RK, key_Rk, best_Rk);
  const top_k_cuda::TopK<Real> job{score_RK.const_data_ptr<Real>(),
                                   key_Rk.data_ptr<int64_t>(),
                                   best_Rk.data_ptr<Real>(),
                                   score_RK.size(0),
                                   score_RK.size(1),
                                   k};
  top_k_cuda::launch_top_k(job, current_stream());
}

/// The best keys of each row, by the scores of some rows at a time: at most 64 MiB, or one row's.
template <class Real>
void search(const Tensor& query, c10::IntArrayRef rows_u, const Tensor& keys, const Tensor& key_Rk,
            const Tensor& best_Rk) {
  constexpr int64_t kScores = int64_t{1} << 24;
  const int64_t most = std::max<int64_t>(1, kScores / keys.size(1));
  const int64_t most_rows = rows_u.empty() ? 0 : *std::max_element(rows_u.begin(), rows_u.end());
  const Tensor scores = torch::empty({std::min(most, most_rows), keys.size(1)}, query.options());
  int64_t first = 0;
  for (size_t unit = 0; unit < rows_u.size(); ++unit) {
    const Tensor keys_t = keys.select(0, static_cast<int64_t>(unit)).t();
    const int64_t end = first + rows_u[unit];
    for (; first < end; first += std::min(most, end - first)) {
      const int64_t count = std::min(most, end - first);
      Tensor part = scores.narrow(0, 0, count);
      at::mm_out(part, query.narrow(0, first, count), keys_t);
      choose<Real>(part, key_Rk.narrow(0, first, count), best_Rk.narrow(0, first, count));
    }
  }
}

std::tuple<Tensor, Tensor, Tensor, Tensor> lookup_forward_cuda(
    const Tensor& query, c10::IntArrayRef rows_u, const Tensor& keys, const Tensor& values,
    const MaybeTensor& scale, int64_t k) {
  const c10::cuda::CUDAGuard guard(query.device());
  const int64_t num_rows = query.size(0);
  // For the backward pass.
  TORCH_CHECK(num_rows * k <= std::numeric_limits<uint32_t>::max(), "memory_lookup: ", num_rows,
              " rows of ", k, " keys, fewer than 2^32 keys on a GPU; raise train.accumulate");
  Tensor y = torch::empty_like(query);
  Tensor chosen_Rk = torch::empty({num_rows, k}, query.options().dtype(torch::kInt64));
  Tensor score_Rk = torch::empty({num_rows, k}, query.options());
  Tensor weight_Rk = torch::empty({num_rows, k}, query.options());
  const Lookup lookup{keys,     values, ends_of(rows_u, query.device()), scale.value_or(Tensor()),
                      num_rows, k};
  AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "memory_lookup_forward", [&] {
    search<scalar_t>(query, rows_u, keys, chosen_Rk, score_Rk);
    const memory_lookup_cuda::Sums<scalar_t> job{
        chosen_Rk.const_data_ptr<int64_t>(), score_Rk.const_data_ptr<scalar_t>(),
        weight_Rk.data_ptr<scalar_t>(), y.data_ptr<scalar_t>()};
    memory_lookup_cuda::launch_sums(lookup.tables<scalar_t>(), job, current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {y, chosen_Rk, score_Rk, weight_Rk};
}

/// Hits sorted by key, in the order of the rows within a key, and where each key's begin.
std::tuple<Tensor, Tensor> sort_hits(const Tensor& key_H, int64_t num_keys) {
  const auto [sorted_H, hit_H] = key_H.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  return {hit_H, at::searchsorted(sorted_H, at::arange(num_keys + 1, key_H.options()))};
}

/// `result`: gradients of query, keys, values and scale, to be written; undefined: not wanted.
template <class Real>
void backward_of(const Lookup& lookup, const Tensor& grad, at::TensorList saved,
                 const std::vector<Tensor>& result) {
  const Tensor &query = saved[0], &chosen_Rk = saved[3], &score_Rk = saved[4],
               &weight_Rk = saved[5];
  const memory_lookup_cuda::Tables<Real> tables = lookup.tables<Real>();
  const Tensor score_grad_Rk = torch::empty_like(score_Rk);
  const Tensor key_H = torch::empty({chosen_Rk.numel()}, chosen_Rk.options());
  const memory_lookup_cuda::RowsBackward<Real> rows{
      grad.const_data_ptr<Real>(),      chosen_Rk.const_data_ptr<int64_t>(),
      weight_Rk.const_data_ptr<Real>(), score_grad_Rk.data_ptr<Real>(),
      data_or_null<Real>(result[0]),    key_H.data_ptr<int64_t>()};
  memory_lookup_cuda::launch_rows_backward(tables, rows, current_stream());
  const auto [hit_H, first_K1] = sort_hits(key_H, lookup.keys.size(0) * lookup.keys.size(1));
  const memory_lookup_cuda::TablesBackward<Real> sums{
      grad.const_data_ptr<Real>(),      query.const_data_ptr<Real>(),
      hit_H.const_data_ptr<int64_t>(),  first_K1.const_data_ptr<int64_t>(),
      weight_Rk.const_data_ptr<Real>(), score_grad_Rk.const_data_ptr<Real>(),
      result[1].data_ptr<Real>(),       result[2].data_ptr<Real>()};
  memory_lookup_cuda::launch_tables_backward(tables, sums, current_stream());
  if (!result[3].defined()) return;
  memory_lookup_cuda::launch_scale_backward(tables, score_grad_Rk.const_data_ptr<Real>(),
                                            score_Rk.const_data_ptr<Real>(),
                                            result[3].data_ptr<Real>(), current_stream());
}

std::vector<Tensor> lookup_backward_cuda(const Tensor& grad, at::TensorList saved,
                                         c10::IntArrayRef rows_u, bool needs_query_grad) {
  const Tensor &query = saved[0], &keys = saved[1], &values = saved[2], &scale = saved[6];
  const c10::cuda::CUDAGuard guard(query.device());
  const std::vector<Tensor> result{needs_query_grad ? torch::empty_like(query) : Tensor(),
                                   torch::empty_like(keys), torch::empty_like(values),
                                   scale.defined() ? torch::empty_like(scale) : Tensor()};
  const Lookup lookup{keys,  values,        ends_of(rows_u, query.device()),
                      scale, query.size(0), saved[3].size(1)};
  AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "memory_lookup_backward",
                             [&] { backward_of<scalar_t>(lookup, grad, saved, result); });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return result;
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("memory_lookup_forward", lookup_forward_cuda);
  m.impl("memory_lookup_backward", lookup_backward_cuda);
}

}  // namespace shoal
