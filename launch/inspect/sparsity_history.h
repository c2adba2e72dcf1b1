#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/runs/curve.h"

// m outputs  n inputs
namespace shoal {

/// A matrix drawn small: means of its entries over squares.
struct ShrunkMatrix {
  int64_t height = 0, width = 0;
  std::vector<double> mean;  ///< height * width, row by row

  double largest() const;
};

/// Sums up a ShrunkMatrix of at most `most` rows and columns.
class MatrixShrinker {
 public:
  MatrixShrinker(int64_t rows, int64_t columns, int64_t most);
  void add(int64_t row, int64_t column, double value) {
    sum_[static_cast<size_t>(row / side_ * width_ + column / side_)] += value;
  }
  ShrunkMatrix shrunk() const;

 private:
  int64_t rows_, columns_;
  int64_t side_;   ///< of a square
  int64_t width_;  ///< of the picture
  std::vector<double> sum_;
};

/// The mask of one matrix in one checkpoint.
struct MaskNumbers {
  int64_t weights = 0;            ///< that are on
  double density = 0.0;           ///< their share
  std::optional<double> changed;  ///< share of them that were off in the checkpoint before
  int64_t empty_rows = 0;         ///< neurons without weights
  /// Weights of an input.
  int64_t least_fan_out = 0, most_fan_out = 0;
  double median_fan_out = 0.0;
  bool is_chosen = true;  ///< false while soft cells are being chosen: all weights are on
};

/// mask_mn, `before_mn`: bool; `before_mn` may be undefined.
MaskNumbers mask_numbers(const torch::Tensor& mask_mn, const torch::Tensor& before_mn);

/// The permutation of one matrix in one checkpoint.
struct PermutationNumbers {
  bool is_soft = false;
  std::optional<double> distance;  ///< Permutation::distance
  std::optional<double> penalty;   ///< soft_permutation_penalty, of soft ones
};

/// One matrix in one checkpoint. Pictures are there where they were asked for.
struct SparseMoment {
  int64_t step = 0;
  MaskNumbers mask;
  std::optional<PermutationNumbers> permutation;
  std::optional<ShrunkMatrix> mask_picture, permutation_picture;
};

struct SparseMatrixHistory {
  std::string name;                   ///< of the weight, of an expert with its id
  std::vector<SparseMoment> moments;  ///< in the order of steps
};

/// A permuted layer as permutations.jsonl has it.
struct PermutationCurves {
  Curve distance{"distance"}, penalty{"penalty"};
  std::optional<int64_t> hard_from = {};  ///< first logged step at which it is hard
};

struct SparseLayerHistory {
  std::string layer;
  int64_t rows = 0, columns = 0;
  double density = 0.0;  ///< asked for
  std::vector<SparseMatrixHistory> matrices = {};
  PermutationCurves curves = {};
};

/// The sparse layers of a run's checkpoints.
struct SparsityHistory {
  std::string pattern, permutation;  ///< their names
  std::vector<int64_t> steps;
  std::vector<SparseLayerHistory> layers;
};

/// How much of a history gets pictures: the first matrices of a layer, and checkpoints evenly
/// spread, the first and the last among them.
inline constexpr size_t kMostDrawnMatrices = 8, kMostDrawnCheckpoints = 6;
inline constexpr int64_t kMostDrawnSide = 192;
/// Whether the i-th of `count` checkpoints is drawn.
bool is_checkpoint_drawn(size_t i, size_t count);

/// Reads masks and permutations of the recipe's sparse layers from checkpoints in the order of
/// their steps; builds no model but on meta. Throws Error (exit 2) if the recipe of the last one
/// has no sparsity, Error (exit 12) where another one is of other layers, CheckpointError.
SparsityHistory read_sparsity_history(const std::vector<std::string>& checkpoints,
                                      bool with_pictures);

/// Adds the curves of the run's permutations.jsonl up to the last step, if it has such a file.
/// Throws DataError for a line that is no record of a permutation.
void add_permutation_curves(const std::string& file, SparsityHistory& history);

}  // namespace shoal
