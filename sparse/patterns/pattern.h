#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/options/registry.h"

// m outputs  n inputs  C cells
namespace shoal {

/// Inputs of one update of a mask: pruning and growing.
struct CellUpdate {
  torch::Tensor is_on_C;       ///< bool: the current mask
  torch::Tensor keep_score_C;  ///< >= 0; the lowest of the cells that are on are dropped
  torch::Tensor grow_score_C;  ///< >= 0; the highest of the cells that are not kept are grown
  int64_t num_drop = 0, num_grow = 0;
  /// True if a cell that was just dropped may not regrow, unless too few others are left.
  bool excludes_dropped = false;
};

/// The structure of a pattern's masks that sparse kernels can use.
enum class MaskStorage {
  kNone,       ///< no kernel is faster than a dense product
  kRows,       ///< any weights
  kDiagonals,  ///< whole diagonals
  kBlocks,     ///< whole blocks of a grid
};

/// Which weights of a matrix [m, n], outputs by inputs, may be nonzero. A pattern divides the
/// matrix into cells that are on or off as a whole; its mask, bool [C], marks the cells that are
/// on.
///
/// Registered under `pattern`. A dynamic sparse training method combines a pattern with a rule that
/// scores cells (sparse/grow_rules). Scores have the dtype of the weights.
class Pattern {
 public:
  struct Context {
    int64_t rows = 0, columns = 0;  ///< m, n
    double density = 1.0;           ///< share of the weights that are nonzero
    std::string layer;              ///< layer name for errors
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "sparsity pattern";

  explicit Pattern(const Context& context) : context_(context) {}
  virtual ~Pattern() = default;

  int64_t rows() const { return context_.rows; }
  int64_t columns() const { return context_.columns; }
  /// True if rules may change the mask; otherwise the first one is final.
  virtual bool can_change() const { return true; }
  /// True if cells are single weights and any num_on() of them form a mask.
  virtual bool takes_any_weights() const { return false; }
  /// True if a mask may temporarily have more cells than num_on().
  virtual bool can_exceed_density() const { return true; }
  /// True if the row span counts as limited by the mask, not free, in PA-DST's theory of linear
  /// regions (section 3.4).
  virtual bool limits_span() const { return false; }
  virtual MaskStorage storage() const { return MaskStorage::kRows; }
  /// Side of the blocks of MaskStorage::kBlocks.
  virtual int64_t block_size() const { return 1; }
  /// The number of cells C.
  virtual int64_t num_cells() const { return rows() * columns(); }
  /// Number of cells that are on; the maximum where masks vary.
  virtual int64_t num_on() const = 0;
  /// Number of weights in those cells.
  virtual int64_t num_weights() const { return num_on(); }
  /// Rank of the dense product beside the mask's (low_rank_branch.h); 0: none. Its (m + n) rank
  /// weights count towards the density.
  virtual int64_t low_rank() const { return 0; }

  /// Scores of cells [C] from one number per weight [m, n]: the L2 norm over each cell; for cells
  /// of one weight the number itself, with its sign.
  virtual torch::Tensor pool(const torch::Tensor& x_mn) const { return x_mn.reshape({-1}); }
  /// Sums one number per weight over each cell: [m, n] -> [C].
  virtual torch::Tensor sum(const torch::Tensor& x_mn) const { return x_mn.reshape({-1}); }
  /// Copies each cell's value to its weights: [C] -> [m, n].
  virtual torch::Tensor expand(const torch::Tensor& value_C) const {
    return value_C.view({rows(), columns()});
  }
  /// True if choose() or update() may return this mask at this density. Default: it has num_on()
  /// cells.
  virtual bool holds(const torch::Tensor& is_on_C) const;
  /// True if a mask of weights [m, n] consists of whole cells and holds() accepts them.
  /// `may_exceed`: allows more cells where can_exceed_density().
  bool fits(const torch::Tensor& mask_mn, bool may_exceed = false) const;
  /// The first mask: the best cells by score, usually random scores.
  virtual torch::Tensor choose(const torch::Tensor& score_C) const;
  /// The mask after pruning and growing; the number of cells is kept if num_drop equals num_grow.
  virtual torch::Tensor update(const CellUpdate& update) const;

 protected:
  /// floor(density · cells), exact in decimals. Throws ConfigError naming the layer if it is 0.
  int64_t share_of(int64_t cells) const;
  /// Throws ConfigError: the density leaves none of `count` `noun`, and the least that leaves one.
  [[noreturn]] void refuse_density(int64_t count, std::string_view noun) const;
  /// Throws ConfigError, listing the sides that work, unless squares of this side fit the matrix.
  void require_squares(int64_t side, std::string_view noun) const;
  /// Throws ConfigError with the text `layer: what`.
  [[noreturn]] void refuse(const std::string& what) const;
  const Context& context() const { return context_; }

 private:
  Context context_;
};

/// The mask without the `num_drop` cells of the lowest keep scores.
torch::Tensor prune(const CellUpdate& update);

/// The grow scores; with excludes_dropped, cells that were just dropped rank below all others.
torch::Tensor grow_scores(const CellUpdate& update, const torch::Tensor& is_kept_C);

}  // namespace shoal
