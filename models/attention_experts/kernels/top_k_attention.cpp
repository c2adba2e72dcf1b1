#include "models/attention_experts/kernels/top_k_attention.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "models/attention_experts/kernels/top_k_attention_cpu.h"
#include "models/kernels/attention_rows.h"
#include "moe/kernels/row_top_k.h"
#include "runtime/device/autograd_function.h"
#include "runtime/device/device_copy.h"
#include "runtime/device/real_types.h"

// I images  N tokens of an image  D width  A heads  H head width = D / A  R queries of all images
// M most queries of an image  P blocks of pooled keys
namespace shoal {
namespace {

/// Non-tensor arguments of a call.
struct TopKCall {
  std::vector<TopKPart> parts;
  int64_t width, dim;
};

/// A part's columns in the call's tensors, or in their gradients.
TopKTensors tensors_of(const variable_list& rows, const TopKPart& part, int64_t width) {
  const int64_t images = std::ssize(part.queries.offset_i1) - 1;
  const int64_t num_queries = part.queries.offset_i1.back();
  const auto columns = [&](const Columns& of) {
    return rows[of.tensor].narrow(1, of.first, width);
  };
  const auto images_of = [&](const Columns& of) {
    const torch::Tensor& all = rows[of.tensor];
    const int64_t tokens = images == 0 ? part.options.grid.tokens() : all.size(0) / images;
    return columns(of).unflatten(0, {images, tokens});
  };
  torch::Tensor weight_R;
  if (part.weight) weight_R = rows[part.weight->tensor].select(1, part.weight->first);
  return {columns(part.query).narrow(0, part.first_query, num_queries), images_of(part.key),
          images_of(part.value), weight_R};
}

/// A part's slice of a call's outputs, or of their gradients.
torch::Tensor of_part(const torch::Tensor& outputs, const TopKCall& call, size_t part) {
  if (call.dim == 1) {
    return outputs.narrow(1, static_cast<int64_t>(part) * call.width, call.width);
  }
  int64_t first = 0;
  for (size_t p = 0; p < part; ++p) first += call.parts[p].queries.offset_i1.back();
  return outputs.narrow(0, first, call.parts[part].queries.offset_i1.back());
}

torch::Tensor empty_outputs(const TopKCall& call, const torch::TensorOptions& options) {
  if (call.dim == 1) {
    return at::empty({call.parts[0].queries.offset_i1.back(), std::ssize(call.parts) * call.width},
                     options);
  }
  int64_t queries = 0;
  for (const TopKPart& part : call.parts) queries += part.queries.offset_i1.back();
  return at::empty({queries, call.width}, options);
}

/// Allocates a gradient; uninitialised if the parts overwrite all of it.
torch::Tensor make_grad(const torch::Tensor& rows, size_t tensor, const TopKCall& call) {
  std::map<std::pair<int64_t, int64_t>, int64_t> blocks;  // rows written, by first column and row
  for (const TopKPart& part : call.parts) {
    if (part.query.tensor == tensor) {
      blocks[{part.query.first, part.first_query}] = part.queries.offset_i1.back();
    }
    for (const Columns& of : {part.key, part.value}) {
      if (of.tensor == tensor) blocks[{of.first, 0}] = rows.size(0);
    }
  }
  int64_t written = 0;
  for (const auto& [place, count] : blocks) written += count * call.width;
  return written == rows.numel() ? at::empty_like(rows) : at::zeros_like(rows);
}

struct TopKAttentionFunction : torch::autograd::Function<TopKAttentionFunction> {
  static torch::Tensor forward(AutogradContext* ctx, at::TensorList rows, const TopKCall& call) {
    const variable_list own = rows.vec();
    ctx->save_for_backward(own);
    save_value(ctx, call);
    const torch::Tensor outputs = empty_outputs(call, own[call.parts[0].query.tensor].options());
    for (size_t p = 0; p < call.parts.size(); ++p) {
      const TopKPart& part = call.parts[p];
      attend_top_k_cpu(tensors_of(own, part, call.width), part.queries, part.options,
                       of_part(outputs, call, p));
    }
    return outputs;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_second_derivatives();
    const variable_list saved = ctx->get_saved_variables();
    const TopKCall& call = saved_value<TopKCall>(ctx);
    const torch::Tensor grad = grads[0].contiguous();
    variable_list result;
    for (size_t t = 0; t < saved.size(); ++t) result.push_back(make_grad(saved[t], t, call));
    std::set<std::pair<size_t, int64_t>> written;  // keys
    for (size_t p = 0; p < call.parts.size(); ++p) {
      const TopKPart& part = call.parts[p];
      const bool adds = !written.insert({part.key.tensor, part.key.first}).second;
      differentiate_top_k_cpu(of_part(grad, call, p), tensors_of(saved, part, call.width),
                              {tensors_of(result, part, call.width), adds}, part.queries,
                              part.options);
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
  TORCH_CHECK(key.scalar_type() == query.scalar_type() &&
                  x.value_IND.scalar_type() == query.scalar_type() &&
                  key.device() == query.device() && x.value_IND.device() == query.device(),
              "top_k_attention: query, key and value differ in dtype or device");
  TORCH_CHECK(query.dim() == 2 && key.dim() == 3 && x.value_IND.sizes() == key.sizes() &&
                  query.size(1) == key.size(2),
              "top_k_attention: expected query [R, D] and key and value [I, N, D], got ",
              query.sizes(), ", ", key.sizes(), " and ", x.value_IND.sizes());
  TORCH_CHECK(options.heads >= 1 && query.size(1) % options.heads == 0,
              "top_k_attention: ", options.heads, " heads do not divide a width of ",
              query.size(1));
  TORCH_CHECK(options.k >= 1, "top_k_attention: k is ", options.k, ", expected at least 1");
  const std::vector<int64_t>& offset = queries.offset_i1;
  TORCH_CHECK(std::ssize(offset) == key.size(0) + 1 && offset.front() == 0 &&
                  offset.back() == query.size(0) && std::ranges::is_sorted(offset),
              "top_k_attention: expected ", key.size(0) + 1, " offsets that ascend from 0 to the ",
              query.size(0), " queries, got ", at::IntArrayRef(offset));
  check_tokens(queries, query.size(0), key.size(1));
  TORCH_CHECK(
      options.candidates.from == CandidateKind::kAll || options.grid.tokens() == key.size(1),
      "top_k_attention: a grid of ", options.grid.rows, " x ", options.grid.columns,
      " patches for ", key.size(1), " tokens");
}

/// Index of each query's token in its image.
torch::Tensor tokens_of(const ImageQueries& queries, const torch::Tensor& key_IND) {
  if (queries.token_R.defined()) return queries.token_R;
  return torch::arange(key_IND.size(1), key_IND.options().dtype(torch::kInt64))
      .repeat({key_IND.size(0)});
}

/// True where a query sees a key in its window, bool [R, N].
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

/// Block of each token, int64 [N]; blocks at the border may be smaller.
torch::Tensor blocks_of(const PatchGrid& grid, int64_t block, const torch::TensorOptions& options) {
  const torch::Tensor token_N = torch::arange(grid.tokens(), options);
  const int64_t across = (grid.columns + block - 1) / block;
  return token_N.div(grid.columns * block, "floor") * across +
         token_N.remainder(grid.columns).div(block, "floor");
}

/// Mask of the k highest of K logits, bool [..., K]; among equal ones the first.
torch::Tensor are_highest(const torch::Tensor& logits, int64_t k) {
  const torch::Tensor rows = logits.detach().reshape({-1, logits.size(-1)});
  const torch::Tensor place = top_k(rows, std::min(k, rows.size(1)));
  return torch::zeros(rows.sizes(), rows.options().dtype(torch::kBool))
      .scatter_(1, place, true)
      .view(logits.sizes());
}

/// a bᵀ on the CPU, where an element's bits depend only on its rows of a and b, not their position.
template <class Real>
torch::Tensor multiply_rows_cpu(const torch::Tensor& a_IAMH, const torch::Tensor& b_IANH) {
  const int64_t M = a_IAMH.size(2), N = b_IANH.size(2), H = a_IAMH.size(3);
  const int64_t columns = round_up(N, attention_tiles::kLanes<Real>);
  const torch::Tensor a = a_IAMH.contiguous();
  const torch::Tensor b =
      at::constant_pad_nd(b_IANH.transpose(2, 3), {0, columns - N}).contiguous();
  const torch::Tensor c = at::empty({a.size(0), a.size(1), M, columns}, a.options());
  at::parallel_for(0, a.size(0) * a.size(1), 1, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      attention_tiles::multiply<Real>({M, columns, H, a.const_data_ptr<Real>() + t * M * H, H,
                                       false, b.const_data_ptr<Real>() + t * H * columns, columns,
                                       c.mutable_data_ptr<Real>() + t * M * columns, columns});
    }
  });
  return c.narrow(3, 0, N);
}

/// a bᵀ with equal bits for equal rows. LibTorch's CPU product may round equal rows of b
/// differently, depending on their position and the number of rows of a.
struct EqualRowProduct : torch::autograd::Function<EqualRowProduct> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& a_IAMH,
                               const torch::Tensor& b_IANH) {
    ctx->save_for_backward({a_IAMH, b_IANH});
    if (!a_IAMH.is_cpu()) return a_IAMH.matmul(b_IANH.transpose(2, 3));
    return a_IAMH.scalar_type() == torch::kFloat64 ? multiply_rows_cpu<double>(a_IAMH, b_IANH)
                                                   : multiply_rows_cpu<float>(a_IAMH, b_IANH);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_second_derivatives();
    const variable_list saved = ctx->get_saved_variables();
    return {grads[0].matmul(saved[1]), grads[0].transpose(2, 3).matmul(saved[0])};
  }
};

/// True where a query sees a key by its blocks, bool [I, A, M, N].
torch::Tensor in_best_blocks(const torch::Tensor& query_IAMH, const torch::Tensor& key_IANH,
                             const TopKOptions& options) {
  const torch::Tensor block_N =
      blocks_of(options.grid, *options.candidates.block,
                torch::TensorOptions().dtype(torch::kInt64).device(key_IANH.device()));
  const torch::Tensor is_in_NP =
      at::one_hot(block_N, num_blocks(options.candidates, options.grid)).to(key_IANH.scalar_type());
  const torch::Tensor share_PN = (is_in_NP / is_in_NP.sum(0)).t();
  const torch::Tensor mean_IAPH =
      EqualRowProduct::apply(share_PN.expand({key_IANH.size(0), key_IANH.size(1), -1, -1}),
                             key_IANH.detach().transpose(2, 3));
  const torch::Tensor is_best_IAMP =
      are_highest(EqualRowProduct::apply(query_IAMH.detach(), mean_IAPH), *options.candidates.keep);
  return is_best_IAMP.index_select(3, block_N);
}

/// Queries padded to [I, M].
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

int64_t num_blocks(const KeyCandidates& candidates, const PatchGrid& grid) {
  const auto across = [&](int64_t side) {
    return (side + *candidates.block - 1) / *candidates.block;
  };
  return across(grid.rows) * across(grid.columns);
}

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
                            {{{0, 0}, 0, {1, 0}, {2, 0}, queries, options}}, query_RD.size(1),
                            /*dim=*/0);
}

namespace {

/// Checks that a part's columns and rows lie within `rows`; check() validates their contents.
void check_part(const std::vector<torch::Tensor>& rows, const TopKPart& part, int64_t width) {
  const int64_t images = std::ssize(part.queries.offset_i1) - 1;
  TORCH_CHECK(images >= 0, "top_k_attention: no offsets of queries");
  for (const Columns& of : {part.query, part.key, part.value}) {
    const torch::Tensor& x = rows.at(of.tensor);
    TORCH_CHECK(x.dim() == 2 && of.first >= 0 && of.first + width <= x.size(1) &&
                    x.scalar_type() == rows[part.query.tensor].scalar_type() &&
                    x.device() == rows[part.query.tensor].device(),
                "top_k_attention: columns ", of.first, " to ", of.first + width, " of ", x.sizes(),
                " ", x.scalar_type());
  }
  for (const Columns& of : {part.key, part.value}) {
    TORCH_CHECK(images == 0 || rows[of.tensor].size(0) % images == 0, "top_k_attention: ", images,
                " images, ", rows[of.tensor].size(0), " rows of keys or values");
  }
  const TopKTensors x = tensors_of(rows, part, width);
  check(x, part.queries, part.options);
  TORCH_CHECK(!part.weight || x.weight_R.size(0) == x.query_RD.size(0),
              "top_k_attention: ", x.query_RD.size(0), " queries, ", x.weight_R.size(0),
              " weights");
}

/// Checks parts that share keys, whose gradients are added in the parts' order.
void check_shared_keys(const std::vector<TopKPart>& parts) {
  const auto place = [](const Columns& of) { return std::pair{of.tensor, of.first}; };
  std::map<std::pair<size_t, int64_t>, const TopKPart*> first_with;
  for (const TopKPart& part : parts) {
    const TopKPart& first = *first_with.try_emplace(place(part.key), &part).first->second;
    TORCH_CHECK(place(first.value) == place(part.value) &&
                    first.queries.offset_i1.size() == part.queries.offset_i1.size(),
                "top_k_attention: parts with the same keys have other values or images");
  }
}

/// True if the CPU's kernel applies, which supports all keys as candidates, or a window.
bool has_kernel(const std::vector<torch::Tensor>& rows, const TopKPart& part) {
  return rows[part.query.tensor].is_cpu() && part.options.candidates.from != CandidateKind::kPooled;
}

/// Computes one part by the reference.
torch::Tensor attend_portable(const std::vector<torch::Tensor>& rows, const TopKPart& part,
                              int64_t width) {
  const TopKTensors x = tensors_of(rows, part, width);
  const torch::Tensor y_RD =
      top_k_attention_portable(x.query_RD, x.key_IND, x.value_IND, part.queries, part.options);
  return part.weight ? (y_RD * x.weight_R.unsqueeze(1)).to(y_RD.scalar_type()) : y_RD;
}

/// Computes parts that have a kernel, as one autograd node.
torch::Tensor attend_by_kernel(const std::vector<torch::Tensor>& rows, const TopKCall& call) {
  variable_list wide;
  for (const torch::Tensor& x : rows) {
    const torch::Tensor y = at_least_float32(x);
    wide.push_back(y.stride(-1) == 1 ? y : y.contiguous());
  }
  return TopKAttentionFunction::apply(at::TensorList(wide), call)
      .to(rows[call.parts[0].query.tensor].scalar_type());
}

}  // namespace

torch::Tensor top_k_attention_of(const std::vector<torch::Tensor>& rows,
                                 const std::vector<TopKPart>& parts, int64_t width, int64_t dim) {
  TORCH_CHECK(!parts.empty() && (dim == 0 || dim == 1), "top_k_attention: ", parts.size(),
              " parts along dimension ", dim);
  for (const TopKPart& part : parts) {
    check_part(rows, part, width);
    TORCH_CHECK(dim == 0 || part.queries.offset_i1.back() == parts[0].queries.offset_i1.back(),
                "top_k_attention: parts side by side have unequal numbers of queries");
  }
  check_shared_keys(parts);
  const auto is_by_kernel = [&](const TopKPart& part) { return has_kernel(rows, part); };
  if (std::ranges::all_of(parts, is_by_kernel)) return attend_by_kernel(rows, {parts, width, dim});
  TopKCall call{{}, width, dim};
  std::ranges::copy_if(parts, std::back_inserter(call.parts), is_by_kernel);
  torch::Tensor by_kernel;
  if (!call.parts.empty()) by_kernel = attend_by_kernel(rows, call);
  std::vector<torch::Tensor> outputs;
  size_t place = 0;  // in the call
  for (const TopKPart& part : parts) {
    outputs.push_back(is_by_kernel(part) ? of_part(by_kernel, call, place++)
                                         : attend_portable(rows, part, width));
  }
  return at::cat(outputs, dim);
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
  torch::Tensor logits_IAMN = EqualRowProduct::apply(query_IAMH, key_IANH);
  const auto keep = [&](const torch::Tensor& is_kept) {
    logits_IAMN = logits_IAMN.masked_fill(~is_kept, -std::numeric_limits<double>::infinity());
  };
  if (options.candidates.from == CandidateKind::kWindow) {
    const torch::Tensor is_seen_RN =
        in_window(tokens_of(queries, key_IND), options.grid, *options.candidates.window);
    // Padding rows see all keys, so that their softmax is defined.
    keep((to_images((~is_seen_RN).to(torch::kUInt8)) == 0).unsqueeze(1));
  }
  if (options.candidates.from == CandidateKind::kPooled) {
    keep(in_best_blocks(query_IAMH, key_IANH, options));
  }
  if (options.k < N) keep(are_highest(logits_IAMN, options.k));
  const torch::Tensor share_IAMN = (logits_IAMN * scale).softmax(3);
  const torch::Tensor y_IMD =
      share_IAMN.matmul(value_IANH).transpose(1, 2).reshape({I * padded.most, D});
  return y_IMD.index_select(0, padded.row_R).to(query_RD.scalar_type());
}

}  // namespace shoal
