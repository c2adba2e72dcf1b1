#include "models/hspmn/kernels/sparse_query_attention.h"

#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>

#include "models/hspmn/kernels/sparse_query_attention_cuda.h"
#include "runtime/device/autograd_function.h"
#include "runtime/device/operator.h"

// forward: output and log-sum-exp [R, N], of [query, key, value]. backward: gradients of query, key
// and value, of [query, key, value, output, log-sum-exp]. All but keys and values are contiguous.
TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def(
      "sparse_query_attention_forward(Tensor[] heads, Tensor limit, int[] offset, float scale) -> "
      "(Tensor, Tensor)");
  m.def(
      "sparse_query_attention_backward(Tensor grad, Tensor[] saved, Tensor limit, int[] offset, "
      "float scale) -> (Tensor, Tensor, Tensor)");
}

// B sequences  S tokens  N query heads  M heads of keys and values  G = N / M  H head width
// R queries of all sequences  C queries of a chunk  E keys of a chunk
namespace shoal {
namespace {

/// Non-tensor arguments of a call.
struct SparseCall {
  SparseQueries queries;
  double scale;
};

std::tuple<torch::Tensor, torch::Tensor> attend_sparsely(const variable_list& heads,
                                                         const SparseCall& call) {
  static const Operator<std::tuple<torch::Tensor, torch::Tensor>(
      at::TensorList, const torch::Tensor&, at::IntArrayRef, double)>
      op("shoal::sparse_query_attention_forward");
  return op(heads, call.queries.limit_R, call.queries.offset_b1, call.scale);
}

struct SparseQueryAttentionFunction : torch::autograd::Function<SparseQueryAttentionFunction> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& query,
                               const torch::Tensor& key, const torch::Tensor& value,
                               const SparseCall& call) {
    const auto [out, log_sum] = attend_sparsely({query, key, value}, call);
    ctx->save_for_backward({query, key, value, out, log_sum});
    save_value(ctx, call);
    return out;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    static const Operator<std::tuple<torch::Tensor, torch::Tensor, torch::Tensor>(
        const torch::Tensor&, at::TensorList, const torch::Tensor&, at::IntArrayRef, double)>
        op("shoal::sparse_query_attention_backward");
    refuse_second_derivatives();
    const auto& [queries, scale] = saved_value<SparseCall>(ctx);
    const auto [query, key, value] = op(grads[0].contiguous(), ctx->get_saved_variables(),
                                        queries.limit_R, queries.offset_b1, scale);
    return {query, key, value, torch::Tensor()};
  }
};

void check_queries(const SparseQueries& queries, int64_t num_queries, int64_t sequences,
                   int64_t tokens) {
  const std::vector<int64_t>& offset = queries.offset_b1;
  TORCH_CHECK(std::ssize(offset) == sequences + 1 && offset.front() == 0 &&
                  offset.back() == num_queries && std::ranges::is_sorted(offset),
              "sparse_query_attention: expected ", sequences + 1,
              " offsets that ascend from 0 to the ", num_queries, " queries, got ",
              at::IntArrayRef(offset));
  const torch::Tensor& limit = queries.limit_R;
  TORCH_CHECK(limit.scalar_type() == torch::kInt64 && limit.sizes() == at::IntArrayRef{num_queries},
              "sparse_query_attention: expected int64 limits [", num_queries, "], got ",
              limit.scalar_type(), " ", limit.sizes());
  if (!limit.is_cpu()) return;  // no copy to the host only to check
  const torch::Tensor dense = limit.contiguous();
  const auto* limit_R = dense.const_data_ptr<int64_t>();
  for (size_t b = 0; b + 1 < offset.size(); ++b) {
    for (int64_t r = offset[b]; r < offset[b + 1]; ++r) {
      const int64_t least = r == offset[b] ? 0 : limit_R[r - 1];
      TORCH_CHECK(least <= limit_R[r] && limit_R[r] < tokens, "sparse_query_attention: limit ",
                  limit_R[r], " of query ", r, " of sequence ", b, " is not in [", least, ", ",
                  tokens, ")");
    }
  }
}

void check_heads(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value) {
  TORCH_CHECK(query.dim() == 3 && key.dim() == 4 && value.sizes() == key.sizes() &&
                  query.size(2) == key.size(3),
              "sparse_query_attention: expected query [R, N, H] and key and value [B, M, S, H], ",
              "got ", query.sizes(), ", ", key.sizes(), " and ", value.sizes());
  TORCH_CHECK(key.size(1) > 0 && query.size(1) % key.size(1) == 0,
              "sparse_query_attention: ", key.size(1), " heads of keys and values do not divide ",
              query.size(1), " query heads");
  TORCH_CHECK(query.scalar_type() == key.scalar_type() && key.scalar_type() == value.scalar_type(),
              "sparse_query_attention: query, key and value are ", query.scalar_type(), ", ",
              key.scalar_type(), " and ", value.scalar_type());
  TORCH_CHECK(query.device() == key.device() && key.device() == value.device(),
              "sparse_query_attention: query, key and value are on ", query.device(), ", ",
              key.device(), " and ", value.device());
  for (const torch::Tensor& rows : {key, value}) {
    TORCH_CHECK(rows.stride(3) == 1 || rows.size(3) <= 1,
                "sparse_query_attention: the last dimension of keys and values must be dense, got ",
                "strides ", rows.strides());
  }
}

void check_call(const variable_list& heads, const SparseQueries& queries) {
  check_heads(heads[0], heads[1], heads[2]);
  TORCH_CHECK(queries.limit_R.device() == heads[0].device(),
              "sparse_query_attention: limits are on ", queries.limit_R.device(), ", queries on ",
              heads[0].device());
  check_queries(queries, heads[0].size(0), heads[1].size(0), heads[1].size(2));
}

/// [C, N, H] -> [1, M, C G, H]: query heads that share keys become rows of one product.
torch::Tensor rows_by_key_head(const torch::Tensor& x_CNH, int64_t key_heads) {
  const int64_t C = x_CNH.size(0), N = x_CNH.size(1), H = x_CNH.size(2);
  return x_CNH.reshape({C, key_heads, N / key_heads, H})
      .transpose(0, 1)
      .reshape({1, key_heads, C * N / key_heads, H});
}

/// Inverse of rows_by_key_head.
torch::Tensor rows_by_query(const torch::Tensor& x_1MRH, at::IntArrayRef sizes_CNH) {
  const int64_t C = sizes_CNH[0], N = sizes_CNH[1], H = sizes_CNH[2], M = x_1MRH.size(1);
  return x_1MRH.reshape({M, C, N / M, H}).transpose(0, 1).reshape({C, N, H});
}

}  // namespace

torch::Tensor sparse_query_attention(const torch::Tensor& query_RNH, const torch::Tensor& key_BMSH,
                                     const torch::Tensor& value_BMSH, const SparseQueries& queries,
                                     double scale) {
  check_call({query_RNH, key_BMSH, value_BMSH}, queries);
  if (query_RNH.is_cuda() && query_RNH.size(2) > sparse_query_cuda::kMostWidth) {
    return sparse_query_attention_portable(query_RNH, key_BMSH, value_BMSH, queries, {scale});
  }
  const torch::Tensor query = query_RNH.contiguous();
  const SparseCall call{{queries.limit_R.contiguous(), queries.offset_b1}, scale};
  const bool needs_grad =
      at::GradMode::is_enabled() &&
      (query.requires_grad() || key_BMSH.requires_grad() || value_BMSH.requires_grad());
  if (!needs_grad) return std::get<0>(attend_sparsely({query, key_BMSH, value_BMSH}, call));
  return SparseQueryAttentionFunction::apply(query, key_BMSH, value_BMSH, call);
}

torch::Tensor sparse_query_attention_portable(const torch::Tensor& query_RNH,
                                              const torch::Tensor& key_BMSH,
                                              const torch::Tensor& value_BMSH,
                                              const SparseQueries& queries,
                                              const PortableAttention& options) {
  const auto& [scale, chunks] = options;
  check_call({query_RNH, key_BMSH, value_BMSH}, queries);
  TORCH_CHECK(chunks > 0, "sparse_query_attention: ", chunks, " chunks");
  const int64_t M = key_BMSH.size(1), group = query_RNH.size(1) / M;
  const torch::Tensor limit = queries.limit_R.to(torch::kCPU).contiguous();
  variable_list outputs;
  for (int64_t b = 0; b < key_BMSH.size(0); ++b) {
    const int64_t begin = queries.offset_b1[b], end = queries.offset_b1[b + 1];
    const int64_t size = std::max<int64_t>(1, (end - begin + chunks - 1) / chunks);
    for (int64_t first = begin; first < end; first += size) {
      const int64_t count = std::min(size, end - first);
      const int64_t E = limit.const_data_ptr<int64_t>()[first + count - 1] + 1;
      const torch::Tensor query_CNH = query_RNH.narrow(0, first, count);
      const torch::Tensor limit_R1 =
          queries.limit_R.narrow(0, first, count).repeat_interleave(group).unsqueeze(1);
      const torch::Tensor y_1MRH = at::scaled_dot_product_attention(
          rows_by_key_head(query_CNH, M), key_BMSH.narrow(0, b, 1).narrow(2, 0, E),
          value_BMSH.narrow(0, b, 1).narrow(2, 0, E),
          /*attn_mask=*/torch::arange(E, limit_R1.options()) <= limit_R1, /*dropout_p=*/0.0,
          /*is_causal=*/false, scale);
      outputs.push_back(rows_by_query(y_1MRH, query_CNH.sizes()));
    }
  }
  // Without queries the result depends on the inputs by a factor of 0, so that gradients are zeros.
  if (outputs.empty()) return query_RNH * 1.0 + (key_BMSH.sum() + value_BMSH.sum()) * 0.0;
  return torch::cat(outputs);
}

}  // namespace shoal
