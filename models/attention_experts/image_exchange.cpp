#include "models/attention_experts/image_exchange.h"

#include <ATen/ops/cat.h>

#include <utility>

#include "moe/kernels/permute_rows.h"
#include "parallel/comm/collectives.h"
#include "runtime/device/device_copy.h"

// b images of this rank  B images of all ranks of the expert group  N tokens of an image  D width
// U units  u units of this rank  I images that have a token for a unit of this rank
// A rows of this rank's tokens  R rows at this rank's units  E ranks
namespace shoal {
namespace {

/// Indices of the nonzero elements, ascending.
torch::Tensor places(const torch::Tensor& mask) { return mask.reshape({-1}).nonzero().squeeze(1); }

torch::Tensor id_tensor(const std::vector<int64_t>& values) {
  return torch::tensor(values, torch::kInt64);
}

RowCounts counts_of(const torch::Tensor& count_E) {
  const torch::Tensor dense = count_E.to(torch::kInt64).contiguous();
  const auto* first = dense.const_data_ptr<int64_t>();
  return {first, first + dense.numel()};
}

/// The tokens of a unit among the I images, uint8 [I, N] on the host.
UnitTokens tokens_of_unit(const torch::Tensor& is_routed_IN) {
  const int64_t I = is_routed_IN.size(0), N = is_routed_IN.size(1);
  const torch::Tensor dense_IN = is_routed_IN.contiguous();
  const auto* is_routed = dense_IN.const_data_ptr<uint8_t>();
  std::vector<int64_t> images, rows, tokens, offsets{0};
  for (int64_t i = 0; i < I; ++i) {
    for (int64_t n = 0; n < N; ++n) {
      if (is_routed[i * N + n] == 0) continue;
      rows.push_back(i * N + n);
      tokens.push_back(n);
    }
    if (std::ssize(rows) == offsets.back()) continue;  // none of this image
    images.push_back(i);
    offsets.push_back(std::ssize(rows));
  }
  UnitTokens result;
  result.queries.offset_i1 = std::move(offsets);
  if (std::ssize(rows) == I * N) return result;
  result.image_J = id_tensor(images);
  result.row_R = id_tensor(rows);
  result.queries.token_R = id_tensor(tokens);
  return result;
}

/// Permutes rows by `order`, if it is defined.
torch::Tensor reorder(const torch::Tensor& rows, const torch::Tensor& order,
                      const torch::Tensor& inverse) {
  return order.defined() ? permute_rows(rows, order, inverse) : rows;
}

/// Permutation of runs of rows from (a, b) order to (b, a) order; `rows_ab`: lengths of the runs.
torch::Tensor order_by_second(const torch::Tensor& rows_ab) {
  const torch::Tensor run = torch::arange(rows_ab.numel());
  const int64_t columns = rows_ab.size(1);
  // The run of each row, and the position of that run in the new order.
  const torch::Tensor run_R = run.repeat_interleave(rows_ab.reshape({-1}));
  return (run_R.remainder(columns) * rows_ab.size(0) + run_R.div(columns, "floor"))
      .argsort(/*stable=*/true, 0, false);
}

}  // namespace

ImageExchange::ImageExchange(Layout layout)
    : placement_(layout.placement),
      images_of_rank_(std::move(layout.images_of_rank)),
      expert_(&layout.expert) {
  TORCH_CHECK(
      placement_.num_ranks() == expert_->size() && std::ssize(images_of_rank_) == expert_->size(),
      "images: units are placed on ", placement_.num_ranks(), " ranks, images on ",
      images_of_rank_.size(), ", the group has ", expert_->size());
}

ImageExchange::ImageExchange(const torch::Tensor& is_routed_bUN, Layout layout)
    : ImageExchange(std::move(layout)) {
  const auto own = static_cast<size_t>(expert_->rank());
  TORCH_CHECK(is_routed_bUN.dim() == 3 && is_routed_bUN.size(0) == images_of_rank_[own] &&
                  is_routed_bUN.size(1) == placement_.num_units(),
              "images: rank ", own, " has masks ", is_routed_bUN.sizes(), ", expected ",
              images_of_rank_[own], " images and ", placement_.num_units(), " units");
  plan(exchange_masks(is_routed_bUN), is_routed_bUN.device());
}

ImageExchange::ImageExchange(int64_t num_tokens, const torch::Device& device, Layout layout)
    : ImageExchange(std::move(layout)) {
  const auto own = static_cast<size_t>(expert_->rank());
  const auto own_units = static_cast<int64_t>(placement_.units_of_rank(expert_->rank()).size());
  plan({torch::ones({images_of_rank_[own], placement_.num_units(), num_tokens}, torch::kBool),
        torch::ones({own_units, sum(images_of_rank_), num_tokens}, torch::kUInt8)},
       device);
}

void ImageExchange::plan(const Masks& masks, const torch::Device& device) {
  plan_images(masks);
  plan_rows(masks);
  const auto send = [&](torch::Tensor& index) {
    if (index.defined()) index = send_to(index, device);
  };
  for (torch::Tensor* index : {&sent_image_, &to_ranks_R_, &from_units_R_, &to_ids_A_, &from_ids_A_,
                               &token_A_, &unit_A_}) {
    send(*index);
  }
  for (UnitTokens& tokens : tokens_u_) {
    for (torch::Tensor* index : {&tokens.image_J, &tokens.row_R, &tokens.queries.token_R}) {
      send(*index);
    }
  }
}

ImageExchange::Masks ImageExchange::exchange_masks(const torch::Tensor& is_routed_bUN) const {
  const torch::Tensor mask_UbN = is_routed_bUN.transpose(0, 1).to(torch::kUInt8).contiguous();
  const int64_t num_own = mask_UbN.numel(), N = is_routed_bUN.size(2);
  if (expert_->size() == 1) {
    const torch::Tensor host_UbN = HostCopy(mask_UbN).wait();
    return {host_UbN.transpose(0, 1).to(torch::kBool), host_UbN};
  }
  const auto own = static_cast<size_t>(expert_->rank());
  const std::vector<int64_t> units_of_rank = placement_.num_units_of_ranks();
  RowCounts send, receive;
  for (size_t rank = 0; rank < units_of_rank.size(); ++rank) {
    send.push_back(units_of_rank[rank] * images_of_rank_[own]);
    receive.push_back(units_of_rank[own] * images_of_rank_[rank]);
  }
  const torch::Tensor order_U = send_to(placement_.units_by_rank(), mask_UbN.device());
  const torch::Tensor received =
      all_to_all(mask_UbN.index_select(0, order_U).reshape({-1, N}), send, receive, *expert_);
  const torch::Tensor host =  // one copy for both
      HostCopy(at::cat({mask_UbN.reshape({-1}), received.reshape({-1})})).wait();
  std::vector<torch::Tensor> parts =
      host.narrow(0, num_own, received.numel()).view({-1, N}).split_with_sizes(receive);
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    parts[rank] = parts[rank].view({units_of_rank[own], images_of_rank_[rank], N});
  }
  return {host.narrow(0, 0, num_own).view(mask_UbN.sizes()).transpose(0, 1).to(torch::kBool),
          at::cat(parts, 1)};
}

void ImageExchange::plan_images(const Masks& masks) {
  const auto& [is_routed_bUN, is_routed_uBN] = masks;
  const torch::Tensor is_used_bU = is_routed_bUN.any(2);
  counts_.images_U = counts_of(is_used_bU.sum(0));
  counts_.images = is_used_bU.any(1).sum().item<int64_t>();
  std::vector<torch::Tensor> sent;
  for (int64_t rank = 0; rank < expert_->size(); ++rank) {
    const torch::Tensor units = id_tensor(placement_.units_of_rank(rank));
    sent.push_back(places(is_used_bU.index_select(1, units).any(1)));
    send_images_.push_back(sent.back().numel());
  }
  const bool has_all = expert_->size() == 1 && send_images_[0] == is_used_bU.size(0);
  if (!has_all) sent_image_ = at::cat(sent);

  const torch::Tensor is_used_B = is_routed_uBN.any(2).any(0);
  for (const torch::Tensor& of_rank : is_used_B.split_with_sizes(images_of_rank_)) {
    recv_images_.push_back(of_rank.sum().item<int64_t>());
  }
  const torch::Tensor is_routed_uIN = is_routed_uBN.index_select(1, places(is_used_B));
  for (int64_t u = 0; u < is_routed_uIN.size(0); ++u) {
    tokens_u_.push_back(tokens_of_unit(is_routed_uIN[u]));
  }
}

void ImageExchange::plan_rows(const Masks& masks) {
  const auto& [is_routed_bUN, is_routed_uBN] = masks;
  const torch::Tensor row_A = places(is_routed_bUN.transpose(0, 1));
  const int64_t num_tokens = is_routed_bUN.size(0) * is_routed_bUN.size(2);
  unit_A_ = row_A.div(num_tokens, "floor");
  token_A_ = row_A.remainder(num_tokens);
  const torch::Tensor rows_U = is_routed_bUN.sum(2).sum(0, /*keepdim=*/false, torch::kInt64);
  counts_.tokens_U = counts_of(rows_U);
  if (expert_->size() == 1) return;

  std::vector<torch::Tensor> rows_uE;
  for (const torch::Tensor& of_rank : is_routed_uBN.split_with_sizes(images_of_rank_, 1)) {
    rows_uE.push_back(of_rank.flatten(1).sum(1, /*keepdim=*/false, torch::kInt64));
  }
  const torch::Tensor units_to_ranks = at::stack(rows_uE, 1);
  send_rows_ = counts_of(units_to_ranks.sum(0));
  to_ranks_R_ = order_by_second(units_to_ranks);
  from_units_R_ = to_ranks_R_.argsort();

  for (int64_t rank = 0; rank < expert_->size(); ++rank) {
    const torch::Tensor units = id_tensor(placement_.units_of_rank(rank));
    recv_rows_.push_back(rows_U.index_select(0, units).sum().item<int64_t>());
  }
  if (placement_.is_contiguous()) return;
  const torch::Tensor order_U = id_tensor(placement_.units_by_rank());
  const torch::Tensor id_A = order_U.repeat_interleave(rows_U.index_select(0, order_U));
  to_ids_A_ = id_A.argsort(/*stable=*/true, 0, false);
  from_ids_A_ = to_ids_A_.argsort();
}

torch::Tensor ImageExchange::to_units(const torch::Tensor& x_bND) const {
  const torch::Tensor sent = sent_image_.defined() ? x_bND.index_select(0, sent_image_) : x_bND;
  if (expert_->size() == 1) return sent;
  return all_to_all(sent, send_images_, recv_images_, *expert_);
}

torch::Tensor ImageExchange::to_images(const torch::Tensor& rows_RD) const {
  if (expert_->size() == 1) return rows_RD;
  const torch::Tensor received =
      all_to_all(reorder(rows_RD, to_ranks_R_, from_units_R_), send_rows_, recv_rows_, *expert_);
  return reorder(received, to_ids_A_, from_ids_A_);
}

}  // namespace shoal
