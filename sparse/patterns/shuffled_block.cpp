#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/sort.h>

#include <algorithm>
#include <numeric>

#include "runtime/device/device_copy.h"
#include "sparse/patterns/best_cells.h"
#include "sparse/patterns/complete_linkage.h"
#include "sparse/patterns/pattern.h"

// m rows  n columns  B side of a block  G = m / B groups of rows  K = n / B blocks of a group
namespace shoal {
namespace {

/// Blocks of B rows by B columns that need not be adjacent: rows are grouped by similar masks, and
/// each group has the columns with the largest weights.
///
/// An update drops a weight only if half of its row or column within a grid block is to be dropped,
/// grows as many, and extracts blocks from the result.
/// Source: the public code of DSB (shuffled block sparse training), there for convolutions.
class ShuffledBlock : public Pattern {
 public:
  struct Options {
    int64_t size = 16;

    static constexpr auto fields() {
      return std::tuple{
          field("size", &Options::size, "side of a block", in_range(2, 1 << 16), unit("weights"))};
    }
  };
  ShuffledBlock(const Options& options, const Context& context)
      : Pattern(context), size_(options.size) {
    require_squares(size_, "blocks");
    const int64_t area = size_ * size_;
    num_blocks_ = (share_of(num_cells()) + area - 1) / area;
  }
  bool can_exceed_density() const override { return false; }
  int64_t num_on() const override { return num_blocks_ * size_ * size_; }

  torch::Tensor choose(const torch::Tensor& score_C) const override {
    const torch::Tensor is_on_C = best_cells(score_C, num_on());
    return extract(is_on_C, score_C * is_on_C);
  }
  torch::Tensor update(const CellUpdate& update) const override {
    const torch::Tensor dropped = honoured(update.is_on_C & ~prune(update));
    if (!dropped.any().item<bool>()) return update.is_on_C;
    const torch::Tensor kept = update.is_on_C & ~dropped;
    const torch::Tensor grown =
        best_cells(grow_scores(update, kept), dropped.sum().item<int64_t>(), ~kept);
    const torch::Tensor size_C = update.keep_score_C * kept;
    // Row by row: the sum of a long tensor depends on the number of threads.
    const torch::Tensor sum = size_C.view({rows(), columns()}).sum(1, false, torch::kFloat64).sum();
    const torch::Tensor mean = (sum / kept.sum().clamp_min(1)).to(size_C.scalar_type());
    return extract(kept | grown, size_C.where(~(grown & ~kept), mean));
  }

 private:
  /// The drops that are executed: half of their row or column within a block is to be dropped.
  torch::Tensor honoured(const torch::Tensor& is_dropped_C) const {
    const torch::Tensor drops =
        is_dropped_C.view({rows() / size_, size_, columns() / size_, size_});
    const auto is_half = [&](int64_t dim) { return drops.sum(dim, /*keepdim=*/true) * 2 >= size_; };
    return (drops & (is_half(1) | is_half(3))).view({-1});
  }

  /// Selects the blocks with the largest weights: bool [C].
  torch::Tensor extract(const torch::Tensor& is_on_C, const torch::Tensor& weight_C) const {
    const int64_t m = rows(), n = columns(), groups = m / size_;
    const torch::Tensor order_m = similar_rows(is_on_C.view({m, n}));
    const torch::Tensor weight_GBn =
        weight_C.view({m, n}).index_select(0, order_m).view({groups, size_, n});
    const torch::Tensor norm_Gn = at::linalg_vector_norm(weight_GBn, 2, at::IntArrayRef{1});
    const auto [sorted_Gn, column_Gn] =
        at::sort(norm_Gn, /*stable=*/true, /*dim=*/1, /*descending=*/true);
    const torch::Tensor norm_GK =
        at::linalg_vector_norm(sorted_Gn.view({groups, n / size_, size_}), 2, at::IntArrayRef{2});
    const torch::Tensor is_best_Gn = best_cells(norm_GK.view({-1}), num_blocks_)
                                         .view({groups, n / size_, 1})
                                         .expand({-1, -1, size_})
                                         .reshape({groups, n});
    const torch::Tensor is_chosen_Gn =
        torch::zeros_like(is_best_Gn).scatter_(1, column_Gn, is_best_Gn);
    const torch::Tensor by_order_mn =
        is_chosen_Gn.unsqueeze(1).expand({-1, size_, -1}).reshape({m, n});
    return torch::empty_like(by_order_mn).index_copy_(0, order_m, by_order_mn).view({-1});
  }

  /// Orders rows so that rows of similar masks (by cosine) are adjacent, large clusters first.
  torch::Tensor similar_rows(const torch::Tensor& is_on_mn) const {
    const torch::Tensor on_mn = is_on_mn.to(torch::kCPU, torch::kFloat32);
    const torch::Tensor shared_mm = on_mn.mm(on_mn.t());  // counts, exact in any order
    const torch::Tensor length_m = on_mn.sum(1).sqrt().clamp_min(1.0);
    const torch::Tensor distance_mm = 1.0 - shared_mm / length_m.outer(length_m);
    const auto* distance = distance_mm.const_data_ptr<float>();
    const std::vector<int64_t> cluster_m =
        complete_linkage({distance, distance + distance_mm.numel()}, rows(), rows() / size_);
    std::vector<int64_t> size_of(static_cast<size_t>(rows()));
    for (const int64_t cluster : cluster_m) ++size_of[static_cast<size_t>(cluster)];
    std::vector<int64_t> order(static_cast<size_t>(rows()));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::ranges::stable_sort(order, {}, [&](int64_t row) {
      const int64_t cluster = cluster_m[static_cast<size_t>(row)];
      return std::pair{-size_of[static_cast<size_t>(cluster)], cluster};
    });
    return send_to(torch::tensor(order, torch::kInt64), is_on_mn.device());
  }

  int64_t size_, num_blocks_ = 0;
};

const Registration<Pattern, ShuffledBlock> registered_shuffled_block{
    "shuffled_block", "blocks of rows with similar masks and their largest columns (DSB)"};

}  // namespace
}  // namespace shoal
