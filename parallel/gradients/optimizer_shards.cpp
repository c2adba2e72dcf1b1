#include "parallel/gradients/optimizer_shards.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/device/device_copy.h"

// P pieces  N numbers of each  M cut matrices
namespace shoal {
namespace {

/// Elements by rank.
template <class Transfers>
RowCounts counts_of(const Transfers& transfers, int64_t num_ranks) {
  RowCounts counts(static_cast<size_t>(num_ranks), 0);
  for (const auto& item : transfers) counts[static_cast<size_t>(item.peer)] += item.length;
  return counts;
}

}  // namespace

OptimizerShards::OptimizerShards(GradientSync& sync) {
  torch::NoGradGuard no_grad;
  for (const GradientSync::Bucket& bucket : sync.buckets()) {
    TORCH_CHECK(bucket.shard.defined(), "optimizer shards of buckets that have none");
    // Every rank makes the same calls, also where no matrix of its own is cut.
    cuts_of(bucket.replicas);
    buckets_.push_back(&bucket);
    flats_.push_back(torch::zeros_like(bucket.flat));
    for (const GradientSync::Slot& slot : bucket.slots) add_slot(bucket, slot);
  }
}

void OptimizerShards::add_slot(const GradientSync::Bucket& bucket, const GradientSync::Slot& slot) {
  const Parameter& parameter = slot.parameter;
  torch::Tensor tensor = parameter.tensor;
  const torch::Tensor view =
      flats_.back().narrow(0, slot.begin, tensor.numel()).view(tensor.sizes());
  view.copy_(tensor);
  tensor.set_data(view);
  const std::string& name = parameter.name;
  if (!parameter.is_stacked()) {
    add_matrix(bucket, {name, name, tensor.sizes().vec(), slot.begin, slot.place});
    return;
  }
  const std::vector<int64_t> sizes = tensor.sizes().slice(1).vec();
  const int64_t numel = c10::multiply_integers(sizes);
  for (size_t row = 0; row < parameter.unit_ids.size(); ++row) {
    add_matrix(bucket, {name_of_unit(name, parameter.unit_ids[row]), name, sizes,
                        slot.begin + static_cast<int64_t>(row) * numel, slot.place});
  }
}

void OptimizerShards::add_matrix(const GradientSync::Bucket& bucket, const Matrix& matrix) {
  const int64_t numel = c10::multiply_integers(matrix.sizes), share = bucket.shard.numel();
  if (numel == 0) return;
  const int64_t end = matrix.begin + numel, own = bucket.replicas->rank();
  CutMatrix cut;
  cut.owner = matrix.begin / share;
  for (int64_t rank = cut.owner; rank * share < end; ++rank) {
    const int64_t first = std::max(matrix.begin, rank * share);
    const int64_t length = std::min(end, (rank + 1) * share) - first;
    cut.lengths.push_back(length);
    if (rank != own) continue;
    cut.piece = share_.parameters.size();
    Parameter piece;
    piece.name = matrix.name;
    piece.tensor = flats_.back().narrow(0, first, length).set_requires_grad(true);
    piece.tensor.mutable_grad() = bucket.shard.narrow(0, first - own * share, length);
    piece.piece = Parameter::Piece{matrix.parameter, matrix.sizes, first - matrix.begin};
    share_.parameters.push_back(std::move(piece));
    share_.places.push_back(matrix.place);
  }
  if (cut.lengths.size() > 1) cuts_of(bucket.replicas).matrices.push_back(std::move(cut));
}

OptimizerShards::Cuts& OptimizerShards::cuts_of(Communicator* replicas) {
  const auto found = std::ranges::find(cuts_, replicas, &Cuts::replicas);
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

OptimizerShards::Located OptimizerShards::locate(const std::string& parameter) const {
  for (const GradientSync::Bucket* bucket : buckets_) {
    for (const GradientSync::Slot& slot : bucket->slots) {
      if (slot.parameter.name == parameter) return {*bucket, slot};
    }
  }
  TORCH_CHECK(false, parameter, " is not trained");
}

OptimizerShards::Located::Part OptimizerShards::Located::part_of(int64_t rank) const {
  const int64_t share = bucket.shard.numel(), slot_end = slot.begin + slot.gradient.numel();
  const int64_t begin = std::clamp(rank * share, slot.begin, slot_end);
  return {begin, std::clamp((rank + 1) * share, slot.begin, slot_end) - begin};
}

OptimizerShards::Range OptimizerShards::range_of(const std::string& parameter) const {
  const Located found = locate(parameter);
  const int64_t rank = found.bucket.replicas->rank(), share = found.bucket.shard.numel();
  const Located::Part part = found.part_of(rank);
  // An empty part may lie outside of the shard.
  const int64_t first = part.length == 0 ? 0 : part.begin - rank * share;
  return {found.bucket.shard.narrow(0, first, part.length), part.begin - found.slot.begin};
}

torch::Tensor OptimizerShards::gather_ranges(const std::string& parameter,
                                             const torch::Tensor& own) const {
  const Located found = locate(parameter);
  Communicator& replicas = *found.bucket.replicas;
  RowCounts counts;
  for (int64_t rank = 0; rank < replicas.size(); ++rank) {
    counts.push_back(found.part_of(rank).length);
  }
  const torch::Tensor whole = torch::empty({found.slot.gradient.numel()}, own.options());
  replicas.start_all_gather(own.contiguous(), whole, counts).wait();
  return whole;
}

void OptimizerShards::sum(torch::Tensor values_PN) {
  for (const Cuts& cuts : cuts_) {
    const std::vector<Transfer> transfers = own_pieces(cuts);
    std::vector<int64_t> matrices, pieces;
    for (const Transfer& transfer : transfers) {
      matrices.push_back(static_cast<int64_t>(transfer.matrix));
      pieces.push_back(static_cast<int64_t>(transfer.piece));
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

void OptimizerShards::move_elements(const Cuts& cuts, const std::vector<Transfer>& out,
                                    const ElementsOf& source, const std::vector<Transfer>& in,
                                    const ElementsOf& target) const {
  const int64_t size = cuts.replicas->size();
  const RowCounts counts_out = counts_of(out, size), counts_in = counts_of(in, size);
  const torch::TensorOptions options = flats_.front().options();
  const torch::Tensor sent = torch::empty({shoal::sum(counts_out)}, options);
  const torch::Tensor received = torch::empty({shoal::sum(counts_in)}, options);
  int64_t place = 0;
  for (const Transfer& transfer : out) {
    sent.narrow(0, place, transfer.length).copy_(source(transfer));
    place += transfer.length;
  }
  cuts.replicas->start_all_to_all(sent, counts_out, received, counts_in).wait();
  place = 0;
  for (const Transfer& transfer : in) {
    target(transfer).copy_(received.narrow(0, place, transfer.length));
    place += transfer.length;
  }
}

std::vector<torch::Tensor> OptimizerShards::gather(const std::vector<torch::Tensor>& pieces) {
  std::vector<torch::Tensor> wholes(pieces.size());
  for (const Cuts& cuts : cuts_) {
    const std::vector<Transfer> in = owned_pieces(cuts);
    for (const Transfer& transfer : in) {
      const CutMatrix& cut = cuts.matrices[transfer.matrix];
      if (transfer.begin != 0) continue;
      const int64_t numel = std::accumulate(cut.lengths.begin(), cut.lengths.end(), int64_t{0});
      wholes[cut.piece] = torch::empty({numel}, flats_.front().options());
    }
    const auto own_piece = [&](const Transfer& transfer) { return pieces[transfer.piece]; };
    const auto part = [&](const Transfer& transfer) {
      return wholes[transfer.piece].narrow(0, transfer.begin, transfer.length);
    };
    move_elements(cuts, own_pieces(cuts), own_piece, in, part);
  }
  return wholes;
}

void OptimizerShards::scatter(const std::vector<torch::Tensor>& wholes,
                              const std::vector<torch::Tensor>& pieces) {
  for (const Cuts& cuts : cuts_) {
    const auto part = [&](const Transfer& transfer) {
      return wholes[transfer.piece].narrow(0, transfer.begin, transfer.length);
    };
    const auto own_piece = [&](const Transfer& transfer) { return pieces[transfer.piece]; };
    move_elements(cuts, owned_pieces(cuts), part, own_pieces(cuts), own_piece);
  }
}

std::vector<OptimizerShards::Transfer> OptimizerShards::own_pieces(const Cuts& cuts) {
  const int64_t own = cuts.replicas->rank();
  std::vector<Transfer> transfers;
  for (size_t m = 0; m < cuts.matrices.size(); ++m) {
    const CutMatrix& cut = cuts.matrices[m];
    const auto place = own - cut.owner;
    if (place < 0 || place >= static_cast<int64_t>(cut.lengths.size())) continue;
    const auto length = cut.lengths.begin() + place;
    transfers.push_back({m, cut.piece, std::accumulate(cut.lengths.begin(), length, int64_t{0}),
                         *length, cut.owner});
  }
  std::ranges::stable_sort(transfers, {}, &Transfer::peer);
  return transfers;
}

std::vector<OptimizerShards::Transfer> OptimizerShards::owned_pieces(const Cuts& cuts) {
  std::vector<Transfer> transfers;
  for (size_t m = 0; m < cuts.matrices.size(); ++m) {
    const CutMatrix& cut = cuts.matrices[m];
    if (cut.owner != cuts.replicas->rank()) continue;
    int64_t begin = 0;
    for (size_t i = 0; i < cut.lengths.size(); ++i) {
      transfers.push_back(
          {m, cut.piece, begin, cut.lengths[i], cut.owner + static_cast<int64_t>(i)});
      begin += cut.lengths[i];
    }
  }
  std::ranges::stable_sort(transfers, {}, &Transfer::peer);
  return transfers;
}

}  // namespace shoal
