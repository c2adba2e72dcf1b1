#include <ATen/ops/constant_pad_nd.h>

#include <limits>

#include "sparse/patterns/best_cells.h"
#include "sparse/patterns/pattern.h"

// G groups  M weights of a group
namespace shoal {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

/// N:M sparsity: N of each M consecutive weights in a row. The last group of a row may be shorter.
///
/// An update drops the weights of lowest scores in the matrix, then grows each group back to N.
class NOfM : public Pattern {
 public:
  struct Options {
    int64_t of = 4;

    static constexpr auto fields() {
      return std::tuple{field("of", &Options::of, "weights per group (M)", in_range(2, 1 << 16),
                              unit("weights"))};
    }
  };
  NOfM(const Options& options, const Context& context)
      : Pattern(context), of_(options.of), keep_(share_of(options.of)) {}
  MaskStorage storage() const override { return MaskStorage::kNone; }
  bool can_exceed_density() const override { return false; }
  int64_t num_on() const override {
    return rows() * (columns() / of_ * keep_ + std::min(keep_, columns() % of_));
  }
  torch::Tensor choose(const torch::Tensor& score_C) const override {
    const torch::Tensor is_best_GM = best_of_rows(groups(score_C), keep_);
    return is_best_GM.view({rows(), -1}).narrow(1, 0, columns()).reshape({-1});
  }
  bool holds(const torch::Tensor& is_on_C) const override {
    return is_on_C.equal(choose(is_on_C.to(torch::kFloat32)));
  }
  torch::Tensor update(const CellUpdate& update) const override {
    // Kept weights of a group rank first, then grown ones.
    const torch::Tensor kept = prune(update);
    return choose(grow_scores(update, kept).masked_fill(kept, -kNever));
  }

 private:
  /// Scores [G, M]; the padding of rows is never chosen.
  torch::Tensor groups(const torch::Tensor& score_C) const {
    const int64_t padding = (of_ - columns() % of_) % of_;
    return at::constant_pad_nd(score_C.view({rows(), columns()}), {0, padding}, kNever)
        .view({-1, of_});
  }

  int64_t of_, keep_;
};

const Registration<Pattern, NOfM> registered_n_of_m{"n_m", "N of M consecutive weights"};

}  // namespace
}  // namespace shoal
