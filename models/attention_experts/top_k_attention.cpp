#include "models/attention_experts/top_k_attention.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "models/attention_experts/top_k_attention_cpu.h"
#include "moe/kernels/row_top_k.h"
#include "runtime/device/device_copy.h"
#include "runtime/device/operator.h"
#include "runtime/device/real_types.h"
#include "runtime/module/saved_value.h"

// I images  N tokens of an image  D width  A heads  H head width = D / A  R queries of all images
// M most queries of an image  P blocks of pooled keys
namespace shoal {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Arguments without gradients.
struct TopKCall {
  std::vector<TopKPart> parts;
  int64_t width;
};

/// A part's columns of the call's tensors, or of their gradients.
TopKTensors tensors_of(const variable_list& rows, const TopKPart& part, int64_t width) {
  const int64_t images = std::ssize(part.queries.offset_i1) - 1;
  const auto columns = [&](const Columns& of) {
    return rows[of.tensor].narrow(1, of.first, width);
  };
  const auto images_of = [&](const Columns& of) {
    const torch::Tensor& all = rows[of.tensor];
    const int64_t tokens = images == 0 ? part.options.grid.tokens() : all.size(0) / images;
    return columns(of).unflatten(0, {images, tokens});
  };
  return {columns(part.query), images_of(part.key), images_of(part.value)};
}

struct TopKAttentionFunction : torch::autograd::Function<TopKAttentionFunction> {
  static variable_list forward(AutogradContext* ctx, at::TensorList rows, const TopKCall& call) {
    const variable_list own = rows.vec();
    ctx->save_for_backward(own);
    save_value(ctx, call);
    variable_list outputs;
    for (const TopKPart& part : call.parts) {
      outputs.push_back(
          attend_top_k_cpu(tensors_of(own, part, call.width), part.queries, part.options));
    }
    return outputs;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    const variable_list saved = ctx->get_saved_variables();
    const auto& [parts, width] = saved_value<TopKCall>(ctx);
    std::set<std::pair<size_t, int64_t>> blocks;  // of columns that are written
    for (const TopKPart& part : parts) {
      for (const Columns& of : {part.query, part.key, part.value}) {
        blocks.insert({of.tensor, of.first});
      }
    }
    variable_list result;
    for (size_t t = 0; t < saved.size(); ++t) {
      const auto of_tensor =
          std::ranges::count_if(blocks, [t](const auto& block) { return block.first == t; });
      const bool is_covered = of_tensor * width == saved[t].size(1);
      result.push_back(is_covered ? at::empty_like(saved[t]) : at::zeros_like(saved[t]));
    }
    std::set<std::pair<size_t, int64_t>> written;
    for (size_t p = 0; p < parts.size(); ++p) {
      const Columns& key = parts[p].key;
      const bool adds = !written.insert({key.tensor, key.first}).second;
      differentiate_top_k_cpu(grads[p].contiguous(), tensors_of(saved, parts[p], width),
                              {tensors_of(result, parts[p], width), adds}, parts[p].queries,
                              parts[p].options);
    }
    result.emplace_back();  // of the call
    return result;
  }
};

void check_tokens(const ImageQueries& queries, int64_t num_queries, int64_t num_tokens) {
  if (!queries.token_R.defined()) {
    for (size_t i = 0; i + 1 < queries.offset_i1.size(); ++i) {
      TORCH_CHECK(queries.offset_i1[i + 1] - queries.offset_i1[i] == num_tokens,
                  "top_k_attention: without token_R every token is a query");
    }
    return;
  }
  const torch::Tensor& token = queries.token_R;
  TORCH_CHECK(token.scalar_type() == torch::kInt64 &&
                  token.sizes() == at::IntArrayRef{num_queries} && token.is_contiguous(),
              "top_k_attention: expected int64 tokens [", num_queries, "], got ",
              token.scalar_type(), " ", token.sizes());
  if (!token.is_cpu()) return;  // no copy to the host only to check
  const auto* token_R = token.const_data_ptr<int64_t>();
  for (int64_t r = 0; r < num_queries; ++r) {
    TORCH_CHECK(0 <= token_R[r] && token_R[r] < num_tokens, "top_k_attention: query ", r,
                " is token ", token_R[r], " of ", num_tokens);
  }
}

void check(const TopKTensors& x, const ImageQueries& queries, const TopKOptions& options) {
  const torch::Tensor &query = x.query_RD, &key = x.key_IND;
  TORCH_CHECK(query.dim() == 2 && key.dim() == 3 && x.value_IND.sizes() == key.sizes() &&
                  query.size(1) == key.size(2),
              "top_k_attention: expected query [R, D] and key and value [I, N, D], got ",
              query.sizes(), ", ", key.sizes(), " and ", x.value_IND.sizes());
  TORCH_CHECK(options.heads >= 1 && query.size(1) % options.heads == 0,
              "top_k_attention: ", options.heads, " heads do not divide a width of ",
              query.size(1));
  TORCH_CHECK(options.k >= 1, "top_k_attention: k is ", options.k, ", expected at least 1");
  const std::vector<int64_t>& offset = queries.offset_i1;
  TORCH_CHECK(static_cast<int64_t>(offset.size()) == key.size(0) + 1 && offset.front() == 0 &&
                  offset.back() == query.size(0) && std::is_sorted(offset.begin(), offset.end()),
              "top_k_attention: expected ", key.size(0) + 1, " offsets that ascend from 0 to the ",
              query.size(0), " queries, got ", at::IntArrayRef(offset));
  check_tokens(queries, query.size(0), key.size(1));
  TORCH_CHECK(
      options.candidates.from == CandidateKind::kAll || options.grid.tokens() == key.size(1),
      "top_k_attention: a grid of ", options.grid.rows, " x ", options.grid.columns,
      " patches for ", key.size(1), " tokens");
}

/// The token of each query.
torch::Tensor tokens_of(const ImageQueries& queries, const torch::Tensor& key_IND) {
  if (queries.token_R.defined()) return queries.token_R;
  return torch::arange(key_IND.size(1), key_IND.options().dtype(torch::kInt64))
      .repeat({key_IND.size(0)});
}

/// Whether a query sees a key of its window, bool [R, N].
torch::Tensor in_window(const torch::Tensor& token_R, const PatchGrid& grid, int64_t window) {
  const torch::Tensor key_N = torch::arange(grid.tokens(), token_R.options());
  const torch::Tensor token_R1 = token_R.unsqueeze(1);
  const auto are_near = [&](const torch::Tensor& a, const torch::Tensor& b) {
    return (a - b).abs() <= window / 2;
  };
  const auto row = [&](const torch::Tensor& x) { return x.div(grid.columns, "floor"); };
  return are_near(row(token_R1), row(key_N)) &
         are_near(token_R1.remainder(grid.columns), key_N.remainder(grid.columns));
}

/// The block of each token, int64 [N]; blocks at the borders may be smaller.
torch::Tensor blocks_of(const PatchGrid& grid, int64_t block, const torch::TensorOptions& options) {
  const torch::Tensor token_N = torch::arange(grid.tokens(), options);
  const int64_t across = (grid.columns + block - 1) / block;
  return token_N.div(grid.columns * block, "floor") * across +
         token_N.remainder(grid.columns).div(block, "floor");
}

/// bool [..., K] of logits: the k highest, of equal ones the first.
torch::Tensor are_highest(const torch::Tensor& logits, int64_t k) {
  const torch::Tensor rows = logits.detach().reshape({-1, logits.size(-1)});
  const torch::Tensor place = top_k(rows, std::min(k, rows.size(1)));
  return torch::zeros(rows.sizes(), rows.options().dtype(torch::kBool))
      .scatter_(1, place, true)
      .view(logits.sizes());
}

/// Which keys the queries see by their blocks, bool [I, A, M, N].
torch::Tensor in_best_blocks(const torch::Tensor& query_IAMH, const torch::Tensor& key_IANH,
                             const TopKOptions& options) {
  const torch::Tensor block_N =
      blocks_of(options.grid, *options.candidates.block,
                torch::TensorOptions().dtype(torch::kInt64).device(key_IANH.device()));
  const PatchGrid& grid = options.grid;
  const auto across = [&](int64_t side) {
    return (side + *options.candidates.block - 1) / *options.candidates.block;
  };
  const int64_t num_blocks = across(grid.rows) * across(grid.columns);
  const torch::Tensor is_in_NP = at::one_hot(block_N, num_blocks).to(key_IANH.scalar_type());
  const torch::Tensor mean_IAPH = (is_in_NP / is_in_NP.sum(0)).t().matmul(key_IANH.detach());
  const torch::Tensor is_best_IAMP =
      are_highest(query_IAMH.detach().matmul(mean_IAPH.transpose(2, 3)), *options.candidates.keep);
  return is_best_IAMP.index_select(3, block_N);
}

/// Rows of the queries in [I, M].
struct PaddedQueries {
  torch::Tensor row_R;  ///< int64
  int64_t most = 0;     ///< M
};

PaddedQueries pad(const ImageQueries& queries, const torch::Device& device) {
  PaddedQueries result;
  const std::vector<int64_t>& offset = queries.offset_i1;
  for (size_t i = 0; i + 1 < offset.size(); ++i) {
    result.most = std::max(result.most, offset[i + 1] - offset[i]);
  }
  std::vector<int64_t> row_R;
  for (size_t i = 0; i + 1 < offset.size(); ++i) {
    for (int64_t r = offset[i]; r < offset[i + 1]; ++r) {
      row_R.push_back(static_cast<int64_t>(i) * result.most + r - offset[i]);
    }
  }
  result.row_R = send_to(torch::tensor(row_R, torch::kInt64), device);
  return result;
}

/// [I, K, D] -> [I, A, K, H].
torch::Tensor split_image_heads(const torch::Tensor& x_IKD, int64_t heads) {
  return x_IKD.reshape({x_IKD.size(0), x_IKD.size(1), heads, x_IKD.size(2) / heads})
      .transpose(1, 2);
}

}  // namespace

int64_t num_candidates(const KeyCandidates& candidates, const PatchGrid& grid) {
  if (candidates.from == CandidateKind::kWindow) {
    return std::min(*candidates.window, grid.rows) * std::min(*candidates.window, grid.columns);
  }
  if (candidates.from == CandidateKind::kPooled) {
    const int64_t rows = std::min(*candidates.block, grid.rows);
    return std::min(grid.tokens(),
                    *candidates.keep * rows * std::min(*candidates.block, grid.columns));
  }
  return grid.tokens();
}

torch::Tensor top_k_attention(const torch::Tensor& query_RD, const torch::Tensor& key_IND,
                              const torch::Tensor& value_IND, const ImageQueries& queries,
                              const TopKOptions& options) {
  check({query_RD, key_IND, value_IND}, queries, options);
  return top_k_attention_of({query_RD, key_IND.flatten(0, 1), value_IND.flatten(0, 1)},
                            {{{0, 0}, {1, 0}, {2, 0}, queries, options}}, query_RD.size(1))[0];
}

std::vector<torch::Tensor> top_k_attention_of(const std::vector<torch::Tensor>& rows,
                                              const std::vector<TopKPart>& parts, int64_t width) {
  const bool is_cpu = std::ranges::all_of(rows, [](const auto& x) { return x.is_cpu(); });
  std::vector<torch::Tensor> outputs(parts.size());
  TopKCall call{{}, width};
  std::vector<size_t> places;  // of the call's parts
  for (size_t p = 0; p < parts.size(); ++p) {
    const auto [query_RD, key_IND, value_IND] = tensors_of(rows, parts[p], width);
    check({query_RD, key_IND, value_IND}, parts[p].queries, parts[p].options);
    if (is_cpu && has_top_k_kernel(parts[p].options)) {
      call.parts.push_back(parts[p]);
      places.push_back(p);
    } else {
      outputs[p] = top_k_attention_portable(query_RD, key_IND, value_IND, parts[p].queries,
                                            parts[p].options);
    }
  }
  if (places.empty()) return outputs;
  variable_list wide;
  for (const torch::Tensor& x : rows) {
    const torch::Tensor y = at_least_float32(x);
    wide.push_back(y.stride(-1) == 1 ? y : y.contiguous());
  }
  const variable_list attended = TopKAttentionFunction::apply(at::TensorList(wide), call);
  for (size_t i = 0; i < places.size(); ++i) {
    outputs[places[i]] = attended[i].to(rows[0].scalar_type());
  }
  return outputs;
}

torch::Tensor top_k_attention_portable(const torch::Tensor& query_RD, const torch::Tensor& key_IND,
                                       const torch::Tensor& value_IND, const ImageQueries& queries,
                                       const TopKOptions& options) {
  check({query_RD, key_IND, value_IND}, queries, options);
  const int64_t I = key_IND.size(0), N = key_IND.size(1), D = key_IND.size(2);
  const double scale = 1.0 / std::sqrt(static_cast<double>(D / options.heads));
  const PaddedQueries padded = pad(queries, query_RD.device());
  const auto to_images = [&](const torch::Tensor& rows) {
    return torch::zeros({I * padded.most, rows.size(1)}, rows.options())
        .index_copy(0, padded.row_R, rows)
        .view({I, padded.most, rows.size(1)});
  };
  const torch::Tensor query_IAMH =
      split_image_heads(to_images(at_least_float32(query_RD)), options.heads);
  const torch::Tensor key_IANH = split_image_heads(at_least_float32(key_IND), options.heads);
  const torch::Tensor value_IANH = split_image_heads(at_least_float32(value_IND), options.heads);
  torch::Tensor logits_IAMN = query_IAMH.matmul(key_IANH.transpose(2, 3)) * scale;
  const auto keep = [&](const torch::Tensor& is_kept) {
    logits_IAMN = logits_IAMN.masked_fill(~is_kept, -std::numeric_limits<double>::infinity());
  };
  if (options.candidates.from == CandidateKind::kWindow) {
    const torch::Tensor is_seen_RN =
        in_window(tokens_of(queries, key_IND), options.grid, *options.candidates.window);
    // Rows of padding see all keys, so that their softmax is defined.
    keep((to_images((~is_seen_RN).to(torch::kUInt8)) == 0).unsqueeze(1));
  }
  if (options.candidates.from == CandidateKind::kPooled) {
    keep(in_best_blocks(query_IAMH, key_IANH, options));
  }
  if (options.k < N) keep(are_highest(logits_IAMN, options.k));
  const torch::Tensor y_IMD =
      logits_IAMN.softmax(3).matmul(value_IANH).transpose(1, 2).reshape({I * padded.most, D});
  return y_IMD.index_select(0, padded.row_R).to(query_RD.scalar_type());
}

}  // namespace shoal
