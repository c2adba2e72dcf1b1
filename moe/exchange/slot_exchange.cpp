#include "moe/exchange/slot_exchange.h"

#include <utility>

#include "moe/kernels/permute_rows.h"
#include "parallel/comm/collectives.h"
#include "runtime/data/loader/data_order.h"
#include "runtime/device/device_copy.h"

// b images of this rank  B images of all ranks of the expert group  U units  u units of this rank
// s slots of a unit  D width
namespace shoal {

std::vector<int64_t> images_of_ranks(const StepContext& step, const RankGrid& grid) {
  std::vector<int64_t> images;
  const int64_t first = grid.world->rank() - grid.expert->rank();
  for (int64_t rank = first; rank < first + grid.expert->size(); ++rank) {
    images.push_back(samples_of_rank({0, step.samples_in_micro}, step.samples_per_group, rank,
                                     grid.world->size())
                         .count);
  }
  return images;
}

SlotExchange::SlotExchange(const UnitPlacement& placement, std::vector<int64_t> images_of_rank,
                           Communicator& expert)
    : placement_(placement), images_of_rank_(std::move(images_of_rank)), expert_(&expert) {
  TORCH_CHECK(placement_.num_ranks() == expert.size() &&
                  static_cast<int64_t>(images_of_rank_.size()) == expert.size(),
              "slots: units are placed on ", placement_.num_ranks(), " ranks, images on ",
              images_of_rank_.size(), ", the group has ", expert.size());
  const auto own = static_cast<size_t>(expert.rank());
  const std::vector<int64_t> units_of_rank = placement_.num_units_of_ranks();
  for (size_t rank = 0; rank < units_of_rank.size(); ++rank) {
    to_units_rows_.push_back(units_of_rank[rank] * images_of_rank_[own]);
    from_images_rows_.push_back(units_of_rank[own] * images_of_rank_[rank]);
  }
}

torch::Tensor SlotExchange::permute_units(const torch::Tensor& slots_Ubsd, bool to_ranks) const {
  if (placement_.is_contiguous()) return slots_Ubsd.contiguous();
  torch::Tensor order = torch::tensor(placement_.units_by_rank(), torch::kInt64);
  torch::Tensor place = order.argsort();
  if (!to_ranks) std::swap(order, place);
  const torch::Tensor rows = slots_Ubsd.reshape({slots_Ubsd.size(0), slots_Ubsd[0].numel()});
  return permute_rows(rows, send_to(order, rows.device()), send_to(place, rows.device()))
      .view(slots_Ubsd.sizes());
}

torch::Tensor SlotExchange::to_units(const torch::Tensor& slots_bUsD) const {
  const int64_t num_own = slots_bUsD.size(0), num_units = placement_.num_units();
  const int64_t num_slots = slots_bUsD.size(2), width = slots_bUsD.size(3);
  TORCH_CHECK(num_own == images_of_rank_[static_cast<size_t>(expert_->rank())] &&
                  slots_bUsD.size(1) == num_units,
              "slots: rank ", expert_->rank(), " has ", slots_bUsD.sizes(), ", expected ",
              images_of_rank_[static_cast<size_t>(expert_->rank())], " images and ", num_units,
              " units");
  const torch::Tensor slots_UbsD = slots_bUsD.transpose(0, 1);
  if (expert_->size() == 1) return slots_UbsD.contiguous();
  const torch::Tensor received =
      all_to_all(permute_units(slots_UbsD, true).view({num_units * num_own, num_slots, width}),
                 to_units_rows_, from_images_rows_, *expert_);
  std::vector<torch::Tensor> parts = received.split_with_sizes(from_images_rows_);
  const auto own_units = static_cast<int64_t>(placement_.units_of_rank(expert_->rank()).size());
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    parts[rank] = parts[rank].view({own_units, images_of_rank_[rank], num_slots, width});
  }
  return torch::cat(parts, 1);
}

torch::Tensor SlotExchange::to_images(const torch::Tensor& slots_uBsD) const {
  const int64_t num_slots = slots_uBsD.size(2), width = slots_uBsD.size(3);
  TORCH_CHECK(slots_uBsD.size(1) == sum(images_of_rank_), "slots: ", slots_uBsD.sizes(), " for ",
              sum(images_of_rank_), " images");
  if (expert_->size() == 1) return slots_uBsD.transpose(0, 1).contiguous();
  std::vector<torch::Tensor> parts = slots_uBsD.split_with_sizes(images_of_rank_, 1);
  for (torch::Tensor& part : parts) {
    part = part.reshape({part.size(0) * part.size(1), num_slots, width});
  }
  const torch::Tensor received =
      all_to_all(torch::cat(parts), from_images_rows_, to_units_rows_, *expert_);
  const int64_t num_own = images_of_rank_[static_cast<size_t>(expert_->rank())];
  return permute_units(received.view({placement_.num_units(), num_own, num_slots, width}), false)
      .transpose(0, 1)
      .contiguous();
}

}  // namespace shoal
