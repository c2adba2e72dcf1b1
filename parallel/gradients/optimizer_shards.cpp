#include "parallel/gradients/optimizer_shards.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "runtime/device/device_copy.h"

// P pieces  N numbers of each  M cut matrices
namespace shoal {
namespace {

/// Elements by rank.
template <class Legs>
RowCounts counts_of(const Legs& legs, int64_t num_ranks) {
  RowCounts counts(static_cast<size_t>(num_ranks), 0);
  for (const auto& leg : legs) counts[static_cast<size_t>(leg.peer)] += leg.length;
  return counts;
}

template <class Legs>
int64_t total_of(const Legs& legs) {
  return std::accumulate(legs.begin(), legs.end(), int64_t{0},
                         [](int64_t sum, const auto& leg) { return sum + leg.length; });
}

}  // namespace

OptimizerShards::OptimizerShards(GradientSync& sync) {
  torch::NoGradGuard no_grad;
  std::unordered_map<const void*, int64_t> index;
  for (const ParameterGroup& group : sync.groups()) {
    for (const Parameter& parameter : group.parameters) {
      index.emplace(parameter.tensor.unsafeGetTensorImpl(), static_cast<int64_t>(index.size()));
    }
  }
  for (const GradientSync::Bucket& bucket : sync.buckets()) {
    TORCH_CHECK(bucket.shard.defined(), "optimizer shards of buckets that have none");
    // Every rank makes the same calls, also where no matrix of its own is cut.
    cuts_of(bucket.replicas);
    buckets_.push_back(&bucket);
    flats_.push_back(torch::zeros_like(bucket.flat));
    for (const GradientSync::Slot& slot : bucket.slots) {
      add_slot(bucket, slot, index.at(slot.parameter.tensor.unsafeGetTensorImpl()));
    }
  }
}

void OptimizerShards::add_slot(const GradientSync::Bucket& bucket, const GradientSync::Slot& slot,
                               int64_t index) {
  Parameter parameter = slot.parameter;
  torch::Tensor& tensor = parameter.tensor;
  const torch::Tensor view =
      flats_.back().narrow(0, slot.begin, tensor.numel()).view(tensor.sizes());
  view.copy_(tensor);
  tensor.set_data(view);
  const std::string& name = parameter.name;
  if (!parameter.is_stacked()) {
    add_matrix(bucket, {name, name, tensor.sizes().vec(), slot.begin, index});
    return;
  }
  const std::vector<int64_t> sizes = tensor.sizes().slice(1).vec();
  const int64_t numel = c10::multiply_integers(sizes);
  for (size_t row = 0; row < parameter.unit_ids.size(); ++row) {
    add_matrix(bucket, {name_of_unit(name, parameter.unit_ids[row]), name, sizes,
                        slot.begin + static_cast<int64_t>(row) * numel, index});
  }
}

void OptimizerShards::add_matrix(const GradientSync::Bucket& bucket, const Matrix& matrix) {
  const int64_t numel = c10::multiply_integers(matrix.sizes), share = bucket.shard.numel();
  if (numel == 0) return;
  const int64_t end = matrix.begin + numel, own = bucket.replicas->rank();
  CutMatrix cut;
  cut.first_rank = matrix.begin / share;
  for (int64_t rank = cut.first_rank; rank * share < end; ++rank) {
    const int64_t first = std::max(matrix.begin, rank * share);
    const int64_t length = std::min(end, (rank + 1) * share) - first;
    cut.lengths.push_back(length);
    if (rank != own) continue;
    cut.piece = pieces_.size();
    Parameter piece;
    piece.name = matrix.name;
    piece.tensor = flats_.back().narrow(0, first, length).set_requires_grad(true);
    piece.tensor.mutable_grad() = bucket.shard.narrow(0, first - own * share, length);
    piece.piece = Parameter::Piece{matrix.parameter, matrix.sizes, first - matrix.begin};
    pieces_.push_back(std::move(piece));
    indices_.push_back(matrix.index);
  }
  if (cut.lengths.size() > 1) cuts_of(bucket.replicas).matrices.push_back(std::move(cut));
}

OptimizerShards::Cuts& OptimizerShards::cuts_of(Communicator* replicas) {
  const auto found = std::find_if(cuts_.begin(), cuts_.end(),
                                  [&](const Cuts& cuts) { return cuts.replicas == replicas; });
  return found != cuts_.end() ? *found : cuts_.emplace_back(Cuts{replicas, {}});
}

void OptimizerShards::gather_weights() {
  torch::NoGradGuard no_grad;
  std::vector<Pending> pending;
  for (size_t b = 0; b < flats_.size(); ++b) {
    Communicator& replicas = *buckets_[b]->replicas;
    if (replicas.size() == 1) continue;
    const int64_t share = buckets_[b]->shard.numel();
    const torch::Tensor own = flats_[b].narrow(0, replicas.rank() * share, share).clone();
    const RowCounts shares(static_cast<size_t>(replicas.size()), share);
    pending.push_back(replicas.start_all_gather(own, flats_[b], shares));
  }
  for (Pending& bucket : pending) bucket.wait();
}

void OptimizerShards::sum(torch::Tensor values_PN) {
  for (const Cuts& cuts : cuts_) {
    const std::vector<Leg> legs = own_legs(cuts);
    std::vector<int64_t> matrices, pieces;
    for (const Leg& leg : legs) {
      matrices.push_back(static_cast<int64_t>(leg.matrix));
      pieces.push_back(static_cast<int64_t>(cuts.matrices[leg.matrix].piece));
    }
    const torch::Tensor matrix = send_to(matrices, values_PN.device());
    const torch::Tensor piece = send_to(pieces, values_PN.device());
    torch::Tensor sum_MN = torch::zeros(
        {static_cast<int64_t>(cuts.matrices.size()), values_PN.size(1)}, values_PN.options());
    sum_MN.index_copy_(0, matrix, values_PN.index_select(0, piece));
    all_reduce(*cuts.replicas, sum_MN);
    values_PN.index_copy_(0, piece, sum_MN.index_select(0, matrix));
  }
}

void OptimizerShards::move_elements(const Cuts& cuts, const std::vector<Leg>& out,
                                    const ElementsOf& source, const std::vector<Leg>& in,
                                    const ElementsOf& target) const {
  const torch::TensorOptions options = flats_.front().options();
  const torch::Tensor sent = torch::empty({total_of(out)}, options);
  const torch::Tensor received = torch::empty({total_of(in)}, options);
  int64_t place = 0;
  for (const Leg& leg : out) {
    sent.narrow(0, place, leg.length).copy_(source(leg));
    place += leg.length;
  }
  const int64_t size = cuts.replicas->size();
  cuts.replicas->start_all_to_all(sent, counts_of(out, size), received, counts_of(in, size)).wait();
  place = 0;
  for (const Leg& leg : in) {
    target(leg).copy_(received.narrow(0, place, leg.length));
    place += leg.length;
  }
}

std::vector<torch::Tensor> OptimizerShards::gather(const std::vector<torch::Tensor>& pieces) {
  std::vector<torch::Tensor> wholes(pieces.size());
  for (const Cuts& cuts : cuts_) {
    const std::vector<Leg> in = legs_of_others(cuts);
    for (const Leg& leg : in) {
      const CutMatrix& cut = cuts.matrices[leg.matrix];
      if (leg.begin != 0) continue;
      const int64_t numel = std::accumulate(cut.lengths.begin(), cut.lengths.end(), int64_t{0});
      wholes[cut.piece] = torch::empty({numel}, flats_.front().options());
    }
    const auto own_piece = [&](const Leg& leg) { return pieces[cuts.matrices[leg.matrix].piece]; };
    const auto part = [&](const Leg& leg) {
      return wholes[cuts.matrices[leg.matrix].piece].narrow(0, leg.begin, leg.length);
    };
    move_elements(cuts, own_legs(cuts), own_piece, in, part);
  }
  return wholes;
}

void OptimizerShards::scatter(const std::vector<torch::Tensor>& wholes,
                              const std::vector<torch::Tensor>& pieces) {
  for (const Cuts& cuts : cuts_) {
    const auto part = [&](const Leg& leg) {
      return wholes[cuts.matrices[leg.matrix].piece].narrow(0, leg.begin, leg.length);
    };
    const auto own_piece = [&](const Leg& leg) { return pieces[cuts.matrices[leg.matrix].piece]; };
    move_elements(cuts, legs_of_others(cuts), part, own_legs(cuts), own_piece);
  }
}

std::vector<OptimizerShards::Leg> OptimizerShards::own_legs(const Cuts& cuts) {
  const int64_t own = cuts.replicas->rank();
  std::vector<Leg> legs;
  for (size_t m = 0; m < cuts.matrices.size(); ++m) {
    const CutMatrix& cut = cuts.matrices[m];
    const auto place = own - cut.first_rank;
    if (place < 0 || place >= static_cast<int64_t>(cut.lengths.size())) continue;
    const auto length = cut.lengths.begin() + place;
    legs.push_back(
        {m, std::accumulate(cut.lengths.begin(), length, int64_t{0}), *length, cut.first_rank});
  }
  std::stable_sort(legs.begin(), legs.end(),
                   [](const Leg& a, const Leg& b) { return a.peer < b.peer; });
  return legs;
}

std::vector<OptimizerShards::Leg> OptimizerShards::legs_of_others(const Cuts& cuts) {
  std::vector<Leg> legs;
  for (size_t m = 0; m < cuts.matrices.size(); ++m) {
    const CutMatrix& cut = cuts.matrices[m];
    if (cut.first_rank != cuts.replicas->rank()) continue;
    int64_t begin = 0;
    for (size_t i = 0; i < cut.lengths.size(); ++i) {
      legs.push_back({m, begin, cut.lengths[i], cut.first_rank + static_cast<int64_t>(i)});
      begin += cut.lengths[i];
    }
  }
  std::stable_sort(legs.begin(), legs.end(),
                   [](const Leg& a, const Leg& b) { return a.peer < b.peer; });
  return legs;
}

}  // namespace shoal
