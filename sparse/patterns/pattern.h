#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/options/registry.h"

// m outputs  n inputs  C cells (sets of weights that are on, free to be nonzero, or off together)
namespace shoal {

/// Arguments of Pattern::update: cells that are on are dropped (pruned), then others are grown.
struct CellUpdate {
  torch::Tensor is_on_C;       ///< bool: the current mask
  torch::Tensor keep_score_C;  ///< >= 0; the num_drop active cells of the lowest scores are dropped
  torch::Tensor grow_score_C;  ///< >= 0; of the cells not kept, those of the highest scores grow
  int64_t num_drop = 0, num_grow = 0;
  /// True if cells just dropped cannot be grown, unless too few others are left.
  bool excludes_dropped = false;
};

/// Storage format of a pattern's masks, which decides the sparse kernel that computes products.
enum class MaskStorage {
  kNone,       ///< no kernel; products are dense
  kRows,       ///< rows of single weights (CSR)
  kDiagonals,  ///< whole diagonals
  kBlocks,     ///< whole blocks of a grid
};

/// Sparsity pattern: which weights of a matrix [m, n], outputs by inputs, may be nonzero. A pattern
/// divides the matrix into cells that are on or off as a whole; a mask is a bool [C].
///
/// Registered under `pattern`. A dynamic sparse training method combines a pattern with a rule that
/// scores cells (sparse/grow_rules). Scores have the dtype of the weights.
class Pattern {
 public:
  struct Context {
    int64_t rows = 0, columns = 0;  ///< m, n
    double density = 1.0;           ///< target: share of the weights that are on
    std::string layer;              ///< name for error messages
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "sparsity pattern";

  explicit Pattern(const Context& context) : context_(context) {}
  virtual ~Pattern() = default;

  int64_t rows() const { return context_.rows; }
  int64_t columns() const { return context_.columns; }
  /// False if the first mask is fixed and rules cannot change it.
  virtual bool can_change() const { return true; }
  /// True if cells are single weights, and any num_on() of them form a mask (unstructured).
  virtual bool takes_any_weights() const { return false; }
  /// True if a mask may temporarily have more than num_on() cells, as with the rule `mest` (em_s).
  virtual bool can_exceed_density() const { return true; }
  /// True if rows of this pattern, such as a band, span only as many input directions as a row has
  /// weights. `shoal check` uses it to bound the linear regions of a ReLU MLP (linear_regions.h).
  /// Source: PA-DST (sparse training with learned permutations), section 3.4.
  virtual bool limits_span() const { return false; }
  virtual MaskStorage storage() const { return MaskStorage::kRows; }
  /// Side of the blocks with MaskStorage::kBlocks, in weights.
  virtual int64_t block_size() const { return 1; }
  virtual int64_t num_cells() const { return rows() * columns(); }  ///< C
  /// Maximum number of active cells at the target density.
  virtual int64_t num_on() const = 0;
  virtual int64_t num_weights() const { return num_on(); }  ///< of num_on() cells
  /// Rank of a dense product U V that is added to the masked one (low_rank_branch.h); 0: none. The
  /// target density includes the (m + n) rank weights of U and V.
  virtual int64_t low_rank() const { return 0; }

  /// Pools a value per weight into one per cell, [m, n] -> [C]: the L2 norm of the cell's values;
  /// for cells of one weight the value itself, with its sign.
  virtual torch::Tensor pool(const torch::Tensor& x_mn) const { return x_mn.reshape({-1}); }
  /// Sums values per weight over each cell: [m, n] -> [C].
  virtual torch::Tensor sum(const torch::Tensor& x_mn) const { return x_mn.reshape({-1}); }
  /// Broadcasts a value per cell, such as a mask, to the cell's weights: [C] -> [m, n].
  virtual torch::Tensor expand(const torch::Tensor& value_C) const {
    return value_C.view({rows(), columns()});
  }
  /// True if choose() or update() could return this mask. Default: it has num_on() cells.
  virtual bool holds(const torch::Tensor& is_on_C) const;
  /// True if a mask of weights [m, n] consists of whole cells and holds() accepts them.
  /// `may_exceed`: also true with more than num_on() cells, if the pattern can_exceed_density().
  bool fits(const torch::Tensor& mask_mn, bool may_exceed = false) const;
  /// Returns a mask, bool [C], of the cells of the highest scores; first masks have random scores.
  virtual torch::Tensor choose(const torch::Tensor& score_C) const;
  /// Returns the mask after pruning and growing; num_drop == num_grow keeps the number of cells.
  virtual torch::Tensor update(const CellUpdate& update) const;

 protected:
  /// floor(density · cells), exact in decimals. Throws ConfigError that names the layer if it is 0.
  int64_t share_of(int64_t cells) const;
  /// Throws ConfigError: the density leaves 0 of `count` `noun`. Names the least density for 1.
  [[noreturn]] void refuse_density(int64_t count, std::string_view noun) const;
  /// Throws ConfigError, listing sides that fit, unless `side` divides m and n. `noun`: "blocks".
  void require_squares(int64_t side, std::string_view noun) const;
  /// Throws ConfigError with the message `layer: what`.
  [[noreturn]] void refuse(const std::string& what) const;
  const Context& context() const { return context_; }

 private:
  Context context_;
};

/// Returns the mask update.is_on_C without its `num_drop` cells of the lowest keep scores.
torch::Tensor prune(const CellUpdate& update);

/// Returns the grow scores. With excludes_dropped, the scores of cells that are on but not in
/// is_kept_C are lowered below all others.
torch::Tensor grow_scores(const CellUpdate& update, const torch::Tensor& is_kept_C);

}  // namespace shoal
