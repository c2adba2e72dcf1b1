#include "moe/routing/capacity_cuda.h"

#include <ATen/ops/constant_pad_nd.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "moe/routing/capacity.h"
#include "runtime/device/current_stream_cuda.h"

// T tokens  K choices per token  U units  G routing groups  N = T K choices  C chunks of choices
//
// Sizes are known without the values: a dropless or capped layer has room for all choices, a padded
// one for the capacity of groups without masked tokens. What is left over is padding at the end.
namespace shoal {
namespace {

using capacity_cuda::Chunks;
using torch::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Choices {
  Tensor unit_TK, score_TK;
  int64_t num_units;
  std::optional<Tensor> priority_T = std::nullopt;  ///< batch priority only

  int64_t k() const { return unit_TK.size(1); }
  int64_t num_tokens() const { return unit_TK.size(0); }
};

/// Chunks of any size for a layer without limits, else the routing groups.
Chunks chunks_of(const Choices& choices, int64_t tokens_per_chunk) {
  const int64_t length = std::max<int64_t>(1, tokens_per_chunk) * choices.k();
  const int64_t num_choices = choices.unit_TK.numel();
  TORCH_CHECK(length <= int64_t{1} << 30, "apply_capacity: ", length,
              " choices in one routing group, at most 2^30 on a GPU; lower train.group");
  return {num_choices, static_cast<int>(length),
          static_cast<int>((num_choices + length - 1) / length),
          static_cast<int>(choices.num_units), static_cast<int>(choices.k())};
}

/// std::nullopt if groups differ in size, apart from a shorter last one.
std::optional<int64_t> tokens_per_group(c10::IntArrayRef offsets) {
  const int64_t length = offsets.size() > 1 ? offsets[1] : 0;
  for (size_t g = 0; g + 1 < offsets.size(); ++g) {
    const bool is_last = g + 2 == offsets.size();
    const int64_t own = offsets[g + 1] - offsets[g];
    if (is_last ? own > length : own != length) return std::nullopt;
  }
  return length;
}

/// Per group, the values of a group in descending order; ties and NaN as on the CPU. [G, length].
Tensor descending(const Tensor& value, int64_t length) {
  const Tensor flat = value.flatten();
  const int64_t num_groups = (flat.size(0) + length - 1) / length;
  const Tensor ordered = flat.masked_fill(flat.isnan(), -kInfinity).add_(0.0);
  const Tensor padded =
      at::constant_pad_nd(ordered, {0, num_groups * length - flat.size(0)}, -kInfinity);
  return std::get<1>(padded.view({num_groups, length})
                         .sort(/*stable=*/true, /*dim=*/1, /*descending=*/true))
      .contiguous();
}

/// Who comes first. The tensors hold what `order` points to.
struct Asking {
  Tensor choice, token;
  capacity_cuda::Order order;
};

Asking asking_order(const Choices& choices, const Chunks& groups, CapacityOrder order) {
  Asking asking{{}, {}, {nullptr, nullptr, false}};
  asking.order.slot_major =
      order == CapacityOrder::kSlotMajor || order == CapacityOrder::kBatchPriority;
  if (choices.unit_TK.numel() == 0) return asking;
  if (order == CapacityOrder::kProbability) {
    asking.choice = descending(choices.score_TK, groups.length);
    asking.order.choice = asking.choice.const_data_ptr<int64_t>();
  }
  if (order == CapacityOrder::kBatchPriority) {
    asking.token = descending(*choices.priority_T, groups.length / choices.k());
    asking.order.token = asking.token.const_data_ptr<int64_t>();
  }
  return asking;
}

/// Room for the rows of all units, known on the host.
int64_t room_for(const Choices& choices, const Chunks& groups, const Capacity& capacity) {
  if (capacity.mode != CapacityMode::kPadded) return choices.unit_TK.numel();
  int64_t room = 0;
  for (int64_t first = 0; first < groups.num_choices; first += groups.length) {
    const int64_t num_choices = std::min<int64_t>(groups.length, groups.num_choices - first);
    room += unit_capacity(num_choices, choices.num_units, capacity) * choices.num_units;
  }
  return room;
}

/// Units of the choices that have a place; sets the rows of each unit and group.
Tensor keep(const Choices& choices, const Chunks& groups, const Capacity& capacity,
            const Tensor& count_UC) {
  const Asking asking = asking_order(choices, groups, capacity.order);
  Tensor kept_TK = torch::empty_like(choices.unit_TK);
  const capacity_cuda::Limit job{
      choices.unit_TK.const_data_ptr<int64_t>(),
      kept_TK.data_ptr<int64_t>(),
      count_UC.data_ptr<int64_t>(),
      capacity.mode == CapacityMode::kPadded,
      {decimal_of(capacity.factor), choices.num_units, capacity.min, capacity.align},
      asking.order};
  capacity_cuda::launch_limit(groups, job, current_stream());
  return kept_TK;
}

std::vector<Tensor> place(const Choices& kept, const Chunks& chunks, const Tensor& count_UC,
                          int64_t room) {
  const Tensor end_UC = count_UC.flatten().cumsum(0);
  Tensor token_A = torch::full({room}, -1, count_UC.options());
  Tensor choice_A = torch::full({room}, -1, count_UC.options());
  const capacity_cuda::Place job{kept.unit_TK.const_data_ptr<int64_t>(),
                                 end_UC.const_data_ptr<int64_t>(),
                                 count_UC.const_data_ptr<int64_t>(), token_A.data_ptr<int64_t>(),
                                 choice_A.data_ptr<int64_t>()};
  capacity_cuda::launch_place(chunks, job, current_stream());
  return {token_A, choice_A, count_UC.sum(1), kept.unit_TK.ge(0).sum()};
}

/// Chunks are the groups, but for a layer without limits.
std::vector<Tensor> assign(const Choices& choices, const Chunks& chunks, const Capacity& capacity) {
  Tensor count_UC = torch::empty({choices.num_units, chunks.count}, choices.unit_TK.options());
  Tensor kept_TK = choices.unit_TK;
  if (capacity.mode != CapacityMode::kDropless) {
    kept_TK = keep(choices, chunks, capacity, count_UC);
  } else {
    capacity_cuda::launch_count(chunks, kept_TK.const_data_ptr<int64_t>(),
                                count_UC.data_ptr<int64_t>(), current_stream());
  }
  std::vector<Tensor> assigned = place({kept_TK, choices.score_TK, choices.num_units}, chunks,
                                       count_UC, room_for(choices, chunks, capacity));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return assigned;
}

/// Groups of several sizes: each is filled up with masked tokens to the longest.
std::vector<Tensor> assign_filled(const Choices& choices, c10::IntArrayRef offsets,
                                  const Capacity& capacity) {
  int64_t length = 0;
  for (size_t g = 1; g < offsets.size(); ++g)
    length = std::max(length, offsets[g] - offsets[g - 1]);
  const int64_t num_filled = length * (static_cast<int64_t>(offsets.size()) - 1);
  const auto integers = choices.unit_TK.options();
  Tensor token_N = torch::full({num_filled}, -1, torch::kInt64);
  for (size_t g = 1; g < offsets.size(); ++g) {
    token_N.narrow(0, (static_cast<int64_t>(g) - 1) * length, offsets[g] - offsets[g - 1])
        .copy_(torch::arange(offsets[g - 1], offsets[g]));
  }
  token_N = token_N.to(integers, /*non_blocking=*/true);
  const Tensor is_masked_N = token_N < 0;
  const auto fill = [&](const Tensor& value) {
    return value.index_select(0, token_N.clamp_min(0));
  };
  Choices filled{fill(choices.unit_TK).masked_fill_(is_masked_N.unsqueeze(1), -1),
                 fill(choices.score_TK), choices.num_units};
  if (choices.priority_T) filled.priority_T = fill(*choices.priority_T);
  std::vector<Tensor> rows = assign(filled, chunks_of(filled, length), capacity);
  const Tensor is_padding_A = rows[0] < 0;
  rows[0] = token_N.index_select(0, rows[0].clamp_min(0)).masked_fill_(is_padding_A, -1);
  rows[1] = (rows[0] * choices.k() + rows[1].remainder(choices.k())).masked_fill_(is_padding_A, -1);
  return rows;
}

std::vector<Tensor> assign_rows_cuda(const Tensor& unit_TK, const Tensor& score_TK,
                                     const std::optional<Tensor>& priority_T,
                                     c10::IntArrayRef group_offsets, int64_t num_units,
                                     int64_t mode, int64_t order, double factor, int64_t min,
                                     int64_t align) {
  const int64_t choices_per_chunk = std::max<int64_t>(512, 4 * num_units);
  const c10::cuda::CUDAGuard guard(unit_TK.device());
  TORCH_CHECK(num_units <= kMostUnitsOnGpu, "apply_capacity: ", num_units, " units, at most ",
              kMostUnitsOnGpu, " on a GPU");
  const Capacity capacity{static_cast<CapacityMode>(mode), factor, min, align,
                          static_cast<CapacityOrder>(order)};
  const Choices choices{unit_TK, score_TK, num_units, priority_T};
  const std::optional<int64_t> tokens_per_chunk =
      capacity.mode == CapacityMode::kDropless
          ? choices_per_chunk / std::max<int64_t>(1, choices.k())
          : tokens_per_group(group_offsets);
  return tokens_per_chunk ? assign(choices, chunks_of(choices, *tokens_per_chunk), capacity)
                          : assign_filled(choices, group_offsets, capacity);
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) { m.impl("assign_rows", assign_rows_cuda); }

}  // namespace shoal
