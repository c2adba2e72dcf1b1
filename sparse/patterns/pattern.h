#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/options/registry.h"

// m outputs  n inputs  C cells
namespace shoal {

/// One step of pruning and growing.
struct CellUpdate {
  torch::Tensor is_on_C;       ///< bool: the mask so far
  torch::Tensor keep_score_C;  ///< >= 0; the lowest of the cells that are on are dropped
  torch::Tensor grow_score_C;  ///< >= 0; the highest of the cells that are not kept are grown
  int64_t num_drop = 0, num_grow = 0;
  /// Whether a cell that was just dropped may not grow again, unless too few others are left.
  bool excludes_dropped = false;
};

/// What sparse kernels know of the masks of a pattern.
enum class MaskStorage {
  kNone,       ///< there is no kernel that is worth it
  kRows,       ///< any weights
  kDiagonals,  ///< whole diagonals
  kBlocks,     ///< whole squares of a grid
};

/// Which weights of a matrix [m, n], outputs by inputs, may be nonzero. A pattern cuts the matrix
/// into cells that are on or off as a whole; its mask is the bool [C] of those that are on.
///
/// Registered under `pattern`. A method of dynamic sparse training is a pattern times a rule that
/// scores cells (sparse/grow_rules). Scores are in the dtype of the weights.
class Pattern {
 public:
  struct Context {
    int64_t rows = 0, columns = 0;  ///< m, n
    double density = 1.0;           ///< share of the weights that are nonzero
    std::string layer;              ///< in errors
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "sparsity pattern";

  explicit Pattern(const Context& context) : context_(context) {}
  virtual ~Pattern() = default;

  int64_t rows() const { return context_.rows; }
  int64_t columns() const { return context_.columns; }
  /// Whether rules may change the mask; else the first one stays.
  virtual bool can_change() const { return true; }
  /// Whether cells are single weights, and any num_on() of them make a mask.
  virtual bool takes_any_weights() const { return false; }
  /// Whether a mask may have more cells than num_on() for a while.
  virtual bool can_exceed_density() const { return true; }
  /// Whether PA-DST's theory of linear regions takes the directions that its rows span as limited
  /// by their weights (section 3.4), or as free.
  virtual bool limits_span() const { return false; }
  virtual MaskStorage storage() const { return MaskStorage::kRows; }
  /// Side of the squares of MaskStorage::kBlocks.
  virtual int64_t block_size() const { return 1; }
  /// C.
  virtual int64_t num_cells() const { return rows() * columns(); }
  /// Cells that are on, at most.
  virtual int64_t num_on() const = 0;
  /// Weights of these.
  virtual int64_t num_weights() const { return num_on(); }
  /// The rank of a dense product beside the mask's (low_rank_branch.h), whose (m + n) rank weights
  /// count as nonzero ones of the density asked for; 0: none.
  virtual int64_t low_rank() const { return 0; }

  /// A score of each cell from numbers of the weights [m, n]: the L2 norm of the cell's; of cells
  /// of one weight the number with its sign.
  virtual torch::Tensor pool(const torch::Tensor& x_mn) const { return x_mn.reshape({-1}); }
  /// The sum over each cell of numbers of the weights: [m, n] -> [C].
  virtual torch::Tensor sum(const torch::Tensor& x_mn) const { return x_mn.reshape({-1}); }
  /// What each weight's cell has: whether it is on, or any number. [C] -> [m, n].
  virtual torch::Tensor expand(const torch::Tensor& value_C) const {
    return value_C.view({rows(), columns()});
  }
  /// Whether a mask of cells is one that choose() or update() may give at this density. Default: it
  /// has num_on() of them.
  virtual bool holds(const torch::Tensor& is_on_C) const;
  /// The same for a mask of weights [m, n], whose cells are each on or off as a whole.
  /// `may_exceed`: where can_exceed_density(), also one of more cells.
  bool fits(const torch::Tensor& mask_mn, bool may_exceed = false) const;
  /// A mask of the highest scores: the first one, from random scores.
  virtual torch::Tensor choose(const torch::Tensor& score_C) const;
  /// The mask after pruning and growing. As many cells as before are on where num_drop is num_grow.
  virtual torch::Tensor update(const CellUpdate& update) const;

 protected:
  /// floor(density · cells), exact in decimals. Throws ConfigError naming the layer if that is
  /// none.
  int64_t share_of(int64_t cells) const;
  /// Throws ConfigError: the density leaves none of so many `noun`, and the least that leaves one.
  [[noreturn]] void refuse_density(int64_t count, std::string_view noun) const;
  /// Throws ConfigError, with the sizes that do, unless squares of this side divide the matrix.
  void require_squares(int64_t side, std::string_view noun) const;
  /// Throws ConfigError: `layer: what`.
  [[noreturn]] void refuse(const std::string& what) const;
  const Context& context() const { return context_; }

 private:
  Context context_;
};

/// Those of `is_on_C` that stay when the `num_drop` of the lowest scores are dropped.
torch::Tensor prune(const CellUpdate& update);

/// The grow scores, where excludes_dropped below all others for those that were just dropped.
torch::Tensor grow_scores(const CellUpdate& update, const torch::Tensor& is_kept_C);

}  // namespace shoal
