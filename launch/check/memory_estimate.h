#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/check/check_recipe.h"

namespace shoal {

/// The memory that a rank of a training takes, in bytes, by what takes it.
///
/// Weights, gradients, the optimizer's state, averages, masks and soft permutations, the copy that
/// a checkpoint is written from and prefetched batches follow from shapes; each class is that of
/// the rank which has most of it. Activations do not, since kernels decide what a layer keeps. They
/// are measured (measure_activations), by two training steps of a few samples on this machine's
/// processor, with the recipe's model and drawn samples, and grow in proportion to the samples.
struct MemoryEstimate {
  std::vector<std::pair<std::string, int64_t>> classes;  ///< `weights`, …; 0 for absent classes
  /// Page cache of mapped text files, of which all ranks of a machine share one copy and which the
  /// system reclaims when memory is short. In no sum.
  int64_t page_cache_bytes = 0;
  int64_t samples = 0;            ///< in the largest micro-batch of a rank
  double bytes_of_sample = 0;     ///< bytes that one more sample takes; 0: not measured
  bool has_activations = false;   ///< activations of all samples; else the sum is a lower bound
  std::string not_measured = {};  ///< why activations are not fully covered

  int64_t total() const;
};

/// Estimates all but the activations for `world` ranks, from the model of `checked`: nothing is
/// allocated.
MemoryEstimate estimate_memory(const CheckedRecipe& checked, int64_t world);

/// Adds `activations` and `process`, the program itself, by a trial training of some seconds;
/// `available`: bytes that it may use. Sets not_measured if memory or time do not suffice, or the
/// trial fails; if only one trial is fast enough, `activations` cover its samples. Call after
/// recycle_tensor_memory.
void measure_activations(const CheckedRecipe& checked, int64_t world, int64_t available,
                         MemoryEstimate& estimate);

/// Removes what does not lie in a GPU's memory: prefetched batches, the copy that a checkpoint is
/// written from, and the program.
void keep_device_classes(MemoryEstimate& estimate);

/// An upper bound of the activations: one byte for each multiply-add, since a number that a layer
/// keeps is a sum of far more products than it has bytes. Nothing where multiply-adds are not
/// known.
std::optional<int64_t> most_activations(const CheckedRecipe& checked,
                                        const MemoryEstimate& estimate);

/// Table of the classes, their sum, and the memory of `ranks` such ranks on one machine.
std::string to_text(const MemoryEstimate& estimate, int64_t ranks);

/// Advice where a rank of `world` finds `available_of_rank` bytes: the largest train.batch that
/// fits, and other keys.
std::string memory_hint(const CheckedRecipe& checked, const MemoryEstimate& estimate,
                        int64_t available_of_rank, int64_t world);

}  // namespace shoal
