#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/runs/curve.h"

// m outputs  n inputs
namespace shoal {

/// A matrix reduced for drawing: means of its entries over squares.
struct ShrunkMatrix {
  int64_t height = 0, width = 0;
  std::vector<double> mean;  ///< height * width, row by row

  double largest() const;
};

/// Computes a ShrunkMatrix of at most `most` rows and columns.
class MatrixShrinker {
 public:
  MatrixShrinker(int64_t rows, int64_t columns, int64_t most);
  void add(int64_t row, int64_t column, double value) {
    sum_[static_cast<size_t>(row / side_ * width_ + column / side_)] += value;
  }
  ShrunkMatrix shrunk() const;

 private:
  int64_t rows_, columns_;
  int64_t side_;   ///< side of a square
  int64_t width_;  ///< width of the reduced matrix
  std::vector<double> sum_;
};

/// Statistics of one matrix's mask in one checkpoint.
struct MaskNumbers {
  int64_t weights = 0;            ///< number of weights that are on
  double density = 0.0;           ///< share of weights that are on
  std::optional<double> changed;  ///< share of those that were off in the checkpoint before
  int64_t empty_rows = 0;         ///< outputs without weights
  /// Number of weights that read an input.
  int64_t least_fan_out = 0, most_fan_out = 0;
  double median_fan_out = 0.0;
  bool is_chosen = true;  ///< false while cells are soft: all weights are on
};

/// Computes the numbers of a mask. mask_mn, `before_mn`: bool; `before_mn` may be undefined.
MaskNumbers mask_numbers(const torch::Tensor& mask_mn, const torch::Tensor& before_mn);

/// Statistics of one matrix's permutation in one checkpoint.
struct PermutationNumbers {
  bool is_soft = false;
  std::optional<double> distance;  ///< Permutation::distance
  std::optional<double> penalty;   ///< soft_permutation_penalty; soft permutations only
};

/// One matrix in one checkpoint; pictures only on request.
struct SparseMoment {
  int64_t step = 0;
  MaskNumbers mask;
  std::optional<PermutationNumbers> permutation;
  std::optional<ShrunkMatrix> mask_picture, permutation_picture;
};

struct SparseMatrixHistory {
  std::string name;                   ///< name of the weight, with its id for an expert
  std::vector<SparseMoment> moments;  ///< in the order of steps
};

/// Curves of a permuted layer from permutations.jsonl.
struct PermutationCurves {
  Curve distance{"distance"}, penalty{"penalty"};
  std::optional<int64_t> hard_from = {};  ///< first logged step at which it was hard
};

/// History of one sparse layer, with all its matrices.
struct SparseLayerHistory {
  std::string layer;
  int64_t rows = 0, columns = 0;
  double density = 0.0;  ///< requested density
  std::vector<SparseMatrixHistory> matrices = {};
  PermutationCurves curves = {};
};

/// History of all sparse layers over a run's checkpoints.
struct SparsityHistory {
  std::string pattern, permutation;  ///< registered names
  std::vector<int64_t> steps;
  std::vector<SparseLayerHistory> layers;
};

/// Limits on pictures: the first matrices of a layer, and evenly spaced checkpoints including the
/// first and the last.
inline constexpr size_t kMostDrawnMatrices = 8, kMostDrawnCheckpoints = 6;
inline constexpr int64_t kMostDrawnSide = 192;
/// True if the i-th of `count` checkpoints is drawn.
bool is_checkpoint_drawn(size_t i, size_t count);

/// Reads masks and permutations of the recipe's sparse layers from checkpoints in the order of
/// their steps; builds the model on meta only. Throws Error (exit 2) if the last one's recipe has
/// no sparsity, Error (exit 12) if another one has other layers, CheckpointError.
SparsityHistory read_sparsity_history(const std::vector<std::string>& checkpoints,
                                      bool with_pictures);

/// Adds the curves of the run's permutations.jsonl up to the last step, if the file exists. Throws
/// DataError for a line that is not a record of a permutation.
void add_permutation_curves(const std::string& file, SparsityHistory& history);

}  // namespace shoal
