#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "runtime/device/cpu_clones.h"
#include "runtime/device/real_types.h"
#include "runtime/kernels/vector_math.h"

// T tokens  A rows  D width
namespace shoal {
namespace {

using vector_math::put;
using vector_math::Real;
using vector_math::real_of;

constexpr int64_t kColumns = 512;  // of a token that are summed at once

int64_t rows_per_task(int64_t width) {
  constexpr int64_t kElements = 32768;
  return std::max<int64_t>(1, kElements / std::max<int64_t>(1, width));
}

std::tuple<torch::Tensor, torch::Tensor> invert_rows_cpu(const torch::Tensor& token_A,
                                                         int64_t num_tokens) {
  torch::Tensor first_T1 = torch::zeros({num_tokens + 1}, torch::kInt64);
  const int64_t num_rows = token_A.size(0);
  const int64_t* token = token_A.const_data_ptr<int64_t>();
  int64_t* first = first_T1.data_ptr<int64_t>();
  for (int64_t a = 0; a < num_rows; ++a) {
    TORCH_CHECK(token[a] >= -1 && token[a] < num_tokens, "row ", a, " comes from token ", token[a],
                " of ", num_tokens);
    if (token[a] >= 0) ++first[token[a] + 1];
  }
  std::partial_sum(first, first + num_tokens + 1, first);
  torch::Tensor row_A = torch::empty({first[num_tokens]}, torch::kInt64);
  int64_t* row = row_A.data_ptr<int64_t>();
  std::vector<int64_t> next(first, first + num_tokens);
  for (int64_t a = 0; a < num_rows; ++a) {
    if (token[a] >= 0) row[next[static_cast<size_t>(token[a])]++] = a;
  }
  return {first_T1, row_A};
}

torch::Tensor gather_rows_cpu(const torch::Tensor& x, const torch::Tensor& index) {
  const int64_t num_rows = index.size(0), num_sources = x.size(0), width = x.size(1);
  torch::Tensor out = torch::empty({num_rows, width}, x.options());
  const size_t row_bytes = static_cast<size_t>(width) * x.element_size();
  const auto* source = static_cast<const char*>(x.const_data_ptr());
  auto* target = static_cast<char*>(out.data_ptr());
  const int64_t* from = index.const_data_ptr<int64_t>();
  at::parallel_for(0, num_rows, rows_per_task(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      char* row = target + static_cast<size_t>(i) * row_bytes;
      TORCH_CHECK(from[i] < num_sources, "gather_rows: row ", from[i], " of ", num_sources);
      if (from[i] < 0) {
        std::memset(row, 0, row_bytes);
      } else {
        std::memcpy(row, source + static_cast<size_t>(from[i]) * row_bytes, row_bytes);
      }
    }
  });
  return out;
}

/// out[t] = sum over i in [first[t], first[t + 1]) of weight[row[i]] * rows[row[i]].
template <class Value>
struct GatherSum {
  const Value* rows;
  const Real<Value>* weight;  // nullptr: all 1
  const int64_t* first;
  const int64_t* row;
  Value* out;
  int64_t width;

  SHOAL_INLINE Real<Value> weight_of(int64_t i) const {
    return weight == nullptr ? Real<Value>(1) : weight[row[i]];
  }
};

/// Some columns of token t, which has two rows at least. Sums are rounded after the last row.
template <class Value>
SHOAL_INLINE void sum_columns(const GatherSum<Value>& job, int64_t t, int64_t from, int64_t count) {
  Value* __restrict__ out = job.out + t * job.width + from;
  int64_t i = job.first[t];
  const int64_t last = job.first[t + 1];
  Real<Value> sum[kColumns];
  const Value* __restrict__ a = job.rows + job.row[i] * job.width + from;
  const Value* __restrict__ b = job.rows + job.row[i + 1] * job.width + from;
  const Real<Value> weight_a = job.weight_of(i), weight_b = job.weight_of(i + 1);
  for (int64_t c = 0; c < count; ++c) sum[c] = weight_a * real_of(a[c]) + weight_b * real_of(b[c]);
  for (i += 2; i < last; ++i) {
    const Value* __restrict__ more = job.rows + job.row[i] * job.width + from;
    const Real<Value> weight_more = job.weight_of(i);
    for (int64_t c = 0; c < count; ++c) sum[c] += weight_more * real_of(more[c]);
  }
  for (int64_t c = 0; c < count; ++c) put(out[c], sum[c]);
}

template <class Value>
SHOAL_INLINE void gather_sum_any(const GatherSum<Value>& job, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    Value* __restrict__ out = job.out + t * job.width;
    const int64_t i = job.first[t], last = job.first[t + 1];
    if (i == last) {
      for (int64_t c = 0; c < job.width; ++c) put(out[c], Real<Value>(0));
    } else if (last - i == 1) {
      const Value* __restrict__ a = job.rows + job.row[i] * job.width;
      const Real<Value> weight_a = job.weight_of(i);
      for (int64_t c = 0; c < job.width; ++c) put(out[c], weight_a * real_of(a[c]));
    } else {
      for (int64_t from = 0; from < job.width; from += kColumns) {
        sum_columns(job, t, from, std::min(kColumns, job.width - from));
      }
    }
  }
}

/// grad_rows[a] = weight[a] * grad[token[a]] and grad_weight[a] = <grad[token[a]], rows[a]>.
template <class Value>
struct CombineBackward {
  const Value* grad;
  const Value* rows;
  const Real<Value>* weight;
  const int64_t* token;
  Value* grad_rows;
  Real<Value>* grad_weight;
  int64_t width;
};

template <class Value>
SHOAL_INLINE void combine_backward_any(const CombineBackward<Value>& job, int64_t begin,
                                       int64_t end) {
  using Sum = Real<Value>;
  constexpr int64_t kLanes = 16;
  for (int64_t a = begin; a < end; ++a) {
    Value* __restrict__ grad_row = job.grad_rows + a * job.width;
    if (job.token[a] < 0) {
      for (int64_t c = 0; c < job.width; ++c) put(grad_row[c], Sum(0));
      job.grad_weight[a] = Sum(0);
      continue;
    }
    const Value* __restrict__ grad = job.grad + job.token[a] * job.width;
    const Value* __restrict__ row = job.rows + a * job.width;
    const Sum weight = job.weight[a];
    Sum lanes[kLanes] = {};
    int64_t c = 0;
    for (; c + kLanes <= job.width; c += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const Sum g = real_of(grad[c + lane]);
        lanes[lane] += g * real_of(row[c + lane]);
        put(grad_row[c + lane], weight * g);
      }
    }
    Sum dot = 0;
    for (; c < job.width; ++c) {
      dot += real_of(grad[c]) * real_of(row[c]);
      put(grad_row[c], weight * real_of(grad[c]));
    }
    for (const Sum lane : lanes) dot += lane;
    job.grad_weight[a] = dot;
  }
}

#define SHOAL_ROW_SUMS(Value)                                                                 \
  SHOAL_CPU_CLONES void gather_sum(const GatherSum<Value>& job, int64_t begin, int64_t end) { \
    gather_sum_any(job, begin, end);                                                          \
  }                                                                                           \
  SHOAL_CPU_CLONES void combine_backward(const CombineBackward<Value>& job, int64_t begin,    \
                                         int64_t end) {                                       \
    combine_backward_any(job, begin, end);                                                    \
  }

SHOAL_ROW_SUMS(float)
SHOAL_ROW_SUMS(double)
SHOAL_ROW_SUMS(Bfloat16)
#undef SHOAL_ROW_SUMS

torch::Tensor gather_sum_rows_cpu(const torch::Tensor& rows, const MaybeTensor& weight,
                                  const torch::Tensor& first, const torch::Tensor& row) {
  const int64_t num_tokens = first.size(0) - 1, width = rows.size(1);
  torch::Tensor out = torch::empty({num_tokens, width}, rows.options());
  for_real_type(rows, "gather_sum_rows", [&]<class Value, class Sum>(Value, Sum) {
    const GatherSum<Value> job{const_data<Value>(rows),
                               const_data_or_null<Sum>(weight),
                               first.const_data_ptr<int64_t>(),
                               row.const_data_ptr<int64_t>(),
                               data<Value>(out),
                               width};
    at::parallel_for(0, num_tokens, rows_per_task(width),
                     [&](int64_t begin, int64_t end) { gather_sum(job, begin, end); });
  });
  return out;
}

std::tuple<torch::Tensor, torch::Tensor> combine_rows_backward_cpu(const torch::Tensor& grad,
                                                                   const torch::Tensor& rows,
                                                                   const torch::Tensor& weight,
                                                                   const torch::Tensor& token) {
  torch::Tensor grad_rows = torch::empty_like(rows);
  torch::Tensor grad_weight = torch::empty_like(weight);
  for_real_type(rows, "combine_rows_backward", [&]<class Value, class Sum>(Value, Sum) {
    const CombineBackward<Value> job{const_data<Value>(grad),
                                     const_data<Value>(rows),
                                     weight.const_data_ptr<Sum>(),
                                     token.const_data_ptr<int64_t>(),
                                     data<Value>(grad_rows),
                                     grad_weight.data_ptr<Sum>(),
                                     rows.size(1)};
    at::parallel_for(0, rows.size(0), rows_per_task(rows.size(1)),
                     [&](int64_t begin, int64_t end) { combine_backward(job, begin, end); });
  });
  return {grad_rows, grad_weight};
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) {
  m.impl("invert_rows", invert_rows_cpu);
  m.impl("gather_rows", gather_rows_cpu);
  m.impl("gather_sum_rows", gather_sum_rows_cpu);
  m.impl("combine_rows_backward", combine_rows_backward_cpu);
}

}  // namespace shoal
