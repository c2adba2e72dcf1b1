#include "models/vision/sparse_mlp_block.h"

#include "models/kernels/token_linear.h"
#include "models/kernels/transpose_add.h"

// B images  S tokens  C width  P new tokens (S')  W new width (C')
namespace shoal {

MixerBlockImpl::MixerBlockImpl(const Sizes& sizes, const torch::TensorOptions& options) {
  token_norm = register_module("token_norm", LayerNorm(sizes.width, options));
  token_mlp =
      register_module("token_mlp", Mlp(sizes.tokens, sizes.token_hidden, sizes.gelu, options));
  channel_norm = register_module("channel_norm", LayerNorm(sizes.width, options));
  channel_mlp =
      register_module("channel_mlp", Mlp(sizes.width, sizes.channel_hidden, sizes.gelu, options));
}

torch::Tensor MixerBlockImpl::forward(const torch::Tensor& x_BSC) const {
  const NormedBranch x = token_norm->branch(x_BSC);  // Sparse-MLP eq. 8
  const NormedBranch y1 =
      channel_norm->branch(token_mlp->forward_over_tokens(x.normed).add_(x.residual));
  // Not in place: a Linear returns a view, whose gradient autograd would copy four times.
  return y1.residual + channel_mlp->forward(y1.normed);  // eq. 9
}

void MixerBlockImpl::list_products(double rows, ProductList& list) const {
  list.visit(*token_norm, rows);
  list.visit(*token_mlp, static_cast<double>(token_norm->weight.size(0)));
  list.visit(*channel_norm, rows);
  list.visit(*channel_mlp, rows);
}

void SparseOptions::validate(Problems& problems) const {
  if (!rescale && tokens) problems.add("tokens", "needs rescale: true");
  if (!rescale && width) problems.add("width", "needs rescale: true");
  if (channel_moe && channel_hidden) {
    problems.add("channel_hidden", "a dense MLP takes MoE_C's place; set channel_moe: null");
  }
  if (!channel_moe && !channel_hidden) {
    problems.add("channel_hidden", "must be set where channel_moe is null");
  }
}

SparseBlockImpl::SparseBlockImpl(const SparseOptions& options, const Sizes& sizes,
                                 const std::string& path, const BuildContext& build)
    : has_outer_residual_(options.outer_residual) {
  const torch::TensorOptions& tensor = build.tensor_options;
  const int64_t S = sizes.tokens, C = sizes.width;
  const int64_t P = options.rescale ? options.tokens.value_or(2 * S) : S;
  const int64_t W = options.rescale ? options.width.value_or(C / 2) : C;
  if (options.rescale) {
    channels_in_ = register_module("channels_in", Linear(C, W, tensor));
    tokens_in_ = register_module("tokens_in", Linear(S, P, tensor));
  }
  token_norm_ = register_module("token_norm", LayerNorm(W, tensor));
  moe_s_ = register_module(
      "moe_s", std::make_shared<MoeLayer>(options.token_moe, P, path + ".moe_s", build));
  channel_norm_ = register_module("channel_norm", LayerNorm(W, tensor));
  if (options.channel_moe) {
    moe_c_ = register_module(
        "moe_c", std::make_shared<MoeLayer>(*options.channel_moe, W, path + ".moe_c", build));
  } else {
    channel_mlp_ =
        register_module("channel_mlp", Mlp(W, options.channel_hidden.value(), sizes.gelu, tensor));
  }
  if (options.rescale) {
    tokens_out_ = register_module("tokens_out", Linear(P, S, tensor));
    channels_out_ = register_module("channels_out", Linear(W, C, tensor));
  }
}

BlockOutput SparseBlockImpl::forward(const torch::Tensor& x_BSC, const StepContext& step) {
  BlockOutput output;
  torch::Tensor h_BPW = x_BSC;
  if (tokens_in_) h_BPW = token_linear(channels_in_->forward(x_BSC), *tokens_in_);  // eq. 4
  const NormedBranch h = token_norm_->branch_transposed(h_BPW);
  MoeOutput token_stage = moe_s_->forward(h.normed, step);
  token_stage.stats.rows_are_tokens = false;  // but channels
  output.auxiliary_loss = token_stage.auxiliary_loss;
  output.moe.push_back(token_stage.stats);
  const NormedBranch y =
      channel_norm_->branch(transpose_add(h.residual, token_stage.y_BRD));  // eq. 5
  torch::Tensor y_BPW;
  if (moe_c_) {
    MoeOutput channel_stage = moe_c_->forward(y.normed, step);
    channel_stage.stats.rows_are_tokens = !tokens_in_;  // but mixtures of tokens
    output.auxiliary_loss = add_loss(output.auxiliary_loss, channel_stage.auxiliary_loss);
    output.moe.push_back(channel_stage.stats);
    y_BPW = y.residual + channel_stage.y_BRD;  // eq. 6
  } else {
    y_BPW = y.residual + channel_mlp_->forward(y.normed);
  }
  output.y = y_BPW;
  if (tokens_out_) output.y = channels_out_->forward(token_linear(y_BPW, *tokens_out_));  // eq. 7
  if (has_outer_residual_) output.y = output.y + x_BSC;
  return output;
}

void SparseBlockImpl::list_products(double rows, ProductList& list) const {
  const auto W = static_cast<double>(token_norm_->weight.size(0));
  const double P = tokens_in_ ? static_cast<double>(tokens_in_->weight.size(0)) : rows;
  if (tokens_in_) list.visit(*channels_in_, rows);
  if (tokens_in_) list.visit(*tokens_in_, W);
  list.visit(*token_norm_, P);
  list.visit(*moe_s_, W);
  list.visit(*channel_norm_, P);
  if (moe_c_) list.visit(*moe_c_, P);
  if (channel_mlp_) list.visit(*channel_mlp_, P);
  if (tokens_out_) list.visit(*tokens_out_, W);
  if (tokens_out_) list.visit(*channels_out_, rows);
}

}  // namespace shoal
