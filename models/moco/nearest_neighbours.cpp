#include "models/moco/nearest_neighbours.h"

#include <algorithm>
#include <cmath>

#include "models/moco/info_nce.h"

// b samples on this rank  N references  k neighbours  C classes  D features
namespace shoal {

void NearestNeighbours::add(const torch::Tensor& feature_bD, const torch::Tensor& label_b,
                            Communicator& world) {
  features_.push_back(gather_rows(unit_rows(feature_bD), world).rows);
  labels_.push_back(gather_rows(label_b, world).rows);
}

int64_t NearestNeighbours::size() const {
  int64_t total = 0;
  for (const torch::Tensor& label : labels_) total += label.size(0);
  return total;
}

torch::Tensor NearestNeighbours::classify(const torch::Tensor& feature_bD,
                                          const torch::Tensor& own_b) const {
  TORCH_CHECK(size() > 0, "nearest neighbours: there are no references");
  const torch::Tensor cosine_bN = unit_rows(feature_bD).mm(torch::cat(features_).t());
  const torch::Tensor label_N = torch::cat(labels_);
  if (own_b.defined()) {
    const torch::Tensor reference_N = torch::arange(size(), own_b.options());
    cosine_bN.masked_fill_(own_b.unsqueeze(1) == reference_N, -INFINITY);
  }
  // A stable sort, since topk does not define which of equal references it takes.
  const auto [sorted_bN, order_bN] = cosine_bN.sort(/*stable=*/true, 1, /*descending=*/true);
  const int64_t k = std::min(neighbours_, size());
  // Relative to the vote of the nearest, which keeps the order and makes every vote finite.
  const torch::Tensor vote_bk =
      ((sorted_bN.narrow(1, 0, k) - sorted_bN.narrow(1, 0, 1)) / temperature_).exp();
  const torch::Tensor label_bk = label_N.index({order_bN.narrow(1, 0, k)});
  const torch::Tensor vote_bC =
      vote_bk.new_zeros({vote_bk.size(0), label_N.max().item<int64_t>() + 1})
          .scatter_add_(1, label_bk, vote_bk);
  return vote_bC.argmax(1);
}

}  // namespace shoal
