#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/check/check_recipe.h"

namespace shoal {

/// What a rank of a training takes, in bytes, by what takes it.
///
/// Weights, gradients, the optimizer's state, averages, masks and soft permutations, the copy that
/// a checkpoint is written from and prefetched batches follow from shapes, of the rank that has
/// most of each. Activations do not: what a layer keeps is up to its kernels. They are measured
/// (measure_activations), by two training steps of a few samples on this machine's processor, with
/// the recipe's model and drawn samples, and grow in proportion to the samples.
struct MemoryEstimate {
  std::vector<std::pair<std::string, int64_t>> classes;  ///< `weights`, …, 0 where there is none
  /// Files of text, which are mapped: page cache, of which all ranks of a machine use one copy and
  /// which the system takes back where memory is short. In no sum.
  int64_t page_cache_bytes = 0;
  int64_t samples = 0;            ///< of a rank's largest micro-batch
  double bytes_of_sample = 0;     ///< that one more of them takes; 0: not measured
  bool has_activations = false;   ///< those of all samples; else the sum is a lower bound
  std::string not_measured = {};  ///< why they are not all there

  int64_t total() const;
};

/// Without activations: nothing is allocated. For `world` ranks.
MemoryEstimate estimate_memory(const CheckedRecipe& checked, int64_t world);

/// Adds `activations` and `process`, the program itself. Trains for some seconds at most, in memory
/// of its own; `available`: bytes that it may take. Leaves not_measured set where that is too
/// little or too slow, or the trial fails; where one trial alone is quick enough, `activations` are
/// those of its samples. After recycle_tensor_memory.
void measure_activations(const CheckedRecipe& checked, int64_t world, int64_t available,
                         MemoryEstimate& estimate);

/// Leaves what lies in a GPU's memory: not prefetched batches, the copy that a checkpoint is
/// written from, nor the program.
void keep_device_classes(MemoryEstimate& estimate);

/// Upper bound of the bytes of activations: one for each multiply-add, since every saved element is
/// a sum of far more products than it has bytes. Nothing if multiply-adds are unknown.
std::optional<int64_t> most_activations(const CheckedRecipe& checked,
                                        const MemoryEstimate& estimate);

/// Rows of a table: what takes how much, their sum, and what `ranks` of them on one machine take.
std::string to_text(const MemoryEstimate& estimate, int64_t ranks);

/// What to do where `ranks` ranks of one machine find `available` bytes: the largest train.batch
/// that fits, and other keys.
std::string memory_hint(const CheckedRecipe& checked, const MemoryEstimate& estimate,
                        int64_t available_of_rank, int64_t world);

}  // namespace shoal
