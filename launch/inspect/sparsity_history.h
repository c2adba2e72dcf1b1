#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/runs/curve.h"

// m outputs  n inputs  s values of a row
namespace shoal {

/// A mask or permutation matrix as a small picture: each pixel is the mean of a square of entries.
struct ShrunkMatrix {
  int64_t height = 0, width = 0;  ///< in pixels
  std::vector<double> mean;       ///< height * width, row by row
};

/// Shrinks a matrix to at most `most` rows and columns of pixels. Without first_m, int64, value_ms
/// is the matrix; with it the matrix is [m, m] and is never made: row r has the values value_ms[r]
/// from column first_m[r] on, and zeros elsewhere.
ShrunkMatrix shrink(const torch::Tensor& value_ms, int64_t most, const torch::Tensor& first_m = {});

/// Statistics of one matrix's mask in one checkpoint. Active weights are those that the mask keeps.
struct MaskNumbers {
  int64_t weights = 0;            ///< number of active weights
  double density = 0.0;           ///< active share of all weights
  std::optional<double> changed;  ///< share of active weights inactive in the previous checkpoint
  int64_t empty_rows = 0;         ///< outputs without active weights
  int64_t least_fan_out = 0, most_fan_out = 0;  ///< fan-out: number of an input's active weights
  double median_fan_out = 0.0;
  bool is_chosen = true;  ///< false while training still chooses the mask: all weights are active
};

/// Statistics of mask_mn, bool; `before_mn`, undefined or bool, is the previous checkpoint's mask.
MaskNumbers mask_numbers(const torch::Tensor& mask_mn, const torch::Tensor& before_mn);

/// Statistics of the permutation P [n, n] of one matrix's inputs or outputs in one checkpoint. The
/// penalty of a soft P is that of AutoShuffleNet (Lyu et al. 2020): L1 minus L2 norm, summed over
/// rows and columns; 0 for a permutation, scaled to 1 for equal entries. P may consist of groups,
/// blocks on its diagonal; then it is their mean.
struct PermutationNumbers {
  bool is_soft = false;            ///< P is a trained matrix, which becomes a permutation later
  std::optional<double> distance;  ///< ‖P - I‖_F / sqrt(2 n), at most 1; unset: soft, P not saved
  std::optional<double> penalty;  ///< in [0, 1]; unset: hard, or soft and P not saved
};

/// One matrix in one checkpoint. Pictures are set if requested.
struct SparseMoment {
  int64_t step = 0;
  MaskNumbers mask;
  std::optional<PermutationNumbers> permutation;
  std::optional<ShrunkMatrix> mask_picture, permutation_picture;
};

/// One weight matrix over the checkpoints.
struct SparseMatrixHistory {
  std::string name;  ///< name of the weight; in a stack of experts with the expert's id
  std::vector<SparseMoment> moments;  ///< in ascending order of steps
};

/// History of one sparse layer: of its matrix, or of the matrices of its experts.
struct SparseLayerHistory {
  std::string layer;
  int64_t rows = 0, columns = 0;  ///< outputs, inputs
  double density = 0.0;           ///< target density
  std::vector<SparseMatrixHistory> matrices = {};
  /// Means over the permutations at logged steps, from permutations.jsonl of the run: `distance`,
  /// `penalty`, and `soft`, 0 once they are hard.
  CurveSet curves = {};
};

/// History of all sparse layers over a run's checkpoints, as `shoal inspect --sparsity` shows it.
struct SparsityHistory {
  std::string pattern, permutation;  ///< names from the recipe: sparsity.pattern, .permutation
  std::vector<int64_t> steps = {};
  std::vector<SparseLayerHistory> layers = {};
};

/// Limits on pictures. Draws a layer's first kMostDrawnMatrices matrices, in evenly spaced
/// checkpoints, at most kMostDrawnCheckpoints, with at most kMostDrawnSide pixels along a side.
inline constexpr size_t kMostDrawnMatrices = 8, kMostDrawnCheckpoints = 6;
inline constexpr int64_t kMostDrawnSide = 192;
/// True if checkpoint `i` of `count`, counted from 0, is drawn; the first and the last one are.
bool is_checkpoint_drawn(size_t i, size_t count);

/// Reads masks and permutations of sparse layers from checkpoints, in ascending order of steps.
/// Builds the last checkpoint's model, on meta. Throws Error (exit 2) if its recipe has no
/// sparsity, Error (exit 12) if a checkpoint has other layers, CheckpointError for damaged files.
SparsityHistory read_sparsity_history(const std::vector<std::string>& checkpoints,
                                      bool with_pictures);

/// Adds the curves up to the last step from the file permutations.jsonl of the run, if it exists.
/// Throws DataError for an invalid line.
void add_permutation_curves(const std::string& file, SparsityHistory& history);

}  // namespace shoal
