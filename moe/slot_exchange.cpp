#include "moe/slot_exchange.h"

#include <numeric>
#include <utility>

#include "moe/permute_rows.h"
#include "runtime/data_order.h"

// b images of this rank  B images of all ranks of the expert group  U units  u units of this rank
// s slots of a unit  D width
namespace shoal {
namespace {

int64_t sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

/// Units rank by rank; and where each unit stands in that order.
std::pair<torch::Tensor, torch::Tensor> rank_order(const UnitPlacement& placement) {
  std::vector<int64_t> order, place(static_cast<size_t>(placement.num_units()));
  for (int64_t rank = 0; rank < placement.num_ranks(); ++rank) {
    for (const int64_t unit : placement.units_of_rank(rank)) {
      place[static_cast<size_t>(unit)] = static_cast<int64_t>(order.size());
      order.push_back(unit);
    }
  }
  return {torch::tensor(order, torch::kInt64), torch::tensor(place, torch::kInt64)};
}

}  // namespace

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
  const auto units_of = [&](int64_t rank) {
    return static_cast<int64_t>(placement_.units_of_rank(rank).size());
  };
  for (int64_t rank = 0; rank < expert.size(); ++rank) {
    to_units_rows_.push_back(units_of(rank) * images_of_rank_[own]);
    from_images_rows_.push_back(units_of(expert.rank()) *
                                images_of_rank_[static_cast<size_t>(rank)]);
  }
}

int64_t SlotExchange::num_images() const { return sum(images_of_rank_); }

torch::Tensor SlotExchange::permute_units(const torch::Tensor& slots_Ubsd, bool to_ranks) const {
  if (placement_.is_contiguous()) return slots_Ubsd.contiguous();
  auto [order, place] = rank_order(placement_);
  if (!to_ranks) std::swap(order, place);
  const torch::Tensor rows = slots_Ubsd.reshape({slots_Ubsd.size(0), slots_Ubsd[0].numel()});
  return permute_rows(rows, order.to(rows.device()), place.to(rows.device()))
      .view(slots_Ubsd.sizes());
}

torch::Tensor SlotExchange::to_units(const torch::Tensor& slots_bUsD) const {
  const int64_t b = slots_bUsD.size(0), s = slots_bUsD.size(2), D = slots_bUsD.size(3);
  TORCH_CHECK(b == images_of_rank_[static_cast<size_t>(expert_->rank())] &&
                  slots_bUsD.size(1) == placement_.num_units(),
              "slots: rank ", expert_->rank(), " has ", slots_bUsD.sizes(), ", expected ",
              images_of_rank_[static_cast<size_t>(expert_->rank())], " images and ",
              placement_.num_units(), " units");
  const torch::Tensor slots_UbsD = slots_bUsD.transpose(0, 1);
  if (expert_->size() == 1) return slots_UbsD.contiguous();
  const torch::Tensor received =
      all_to_all(permute_units(slots_UbsD, true).view({placement_.num_units() * b, s, D}),
                 to_units_rows_, from_images_rows_, *expert_);
  std::vector<torch::Tensor> parts = received.split_with_sizes(from_images_rows_);
  const auto u = static_cast<int64_t>(placement_.units_of_rank(expert_->rank()).size());
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    parts[rank] = parts[rank].view({u, images_of_rank_[rank], s, D});
  }
  return torch::cat(parts, 1);
}

torch::Tensor SlotExchange::to_images(const torch::Tensor& slots_uBsD) const {
  const int64_t s = slots_uBsD.size(2), D = slots_uBsD.size(3);
  TORCH_CHECK(slots_uBsD.size(1) == num_images(), "slots: ", slots_uBsD.sizes(), " for ",
              num_images(), " images");
  if (expert_->size() == 1) return slots_uBsD.transpose(0, 1).contiguous();
  std::vector<torch::Tensor> parts = slots_uBsD.split_with_sizes(images_of_rank_, 1);
  for (torch::Tensor& part : parts) part = part.reshape({part.size(0) * part.size(1), s, D});
  const torch::Tensor received =
      all_to_all(torch::cat(parts), from_images_rows_, to_units_rows_, *expert_);
  const int64_t b = images_of_rank_[static_cast<size_t>(expert_->rank())];
  return permute_units(received.view({placement_.num_units(), b, s, D}), false)
      .transpose(0, 1)
      .contiguous();
}

}  // namespace shoal
