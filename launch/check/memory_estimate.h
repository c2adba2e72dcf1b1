#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/check/check_recipe.h"
#include "launch/job/console.h"
#include "parallel/comm/communicator.h"

namespace shoal {

/// Estimated memory of one rank of a training, in bytes, by class (what uses it). A training whose
/// estimate exceeds the machine's memory does not start.
///
/// These classes follow from shapes, each on the rank that has most of it: weights, gradients,
/// optimizer (its state), averages (of weights), sparsity (masks, soft permutations), batches
/// (prefetched), checkpoint (the copy that a save is written from), exchange (rows in all-to-alls).
/// Measured are activations (kernels decide what a layer keeps) and process (program, libraries).
struct MemoryEstimate {
  std::vector<std::pair<std::string, int64_t>> classes;  ///< name and bytes; 0: not used
  /// Page cache of memory-mapped text files. All ranks of a machine share it, and the system
  /// reclaims it when memory is short; no sum includes it.
  int64_t page_cache_bytes = 0;
  int64_t samples = 0;            ///< samples in the largest micro-batch of a rank
  double bytes_of_sample = 0;     ///< bytes that one more sample would take; 0: not measured
  bool has_activations = false;   ///< activations cover all samples; if false, total() is too low
  std::string not_measured = {};  ///< why has_activations is false

  int64_t total() const;  ///< sum of the classes
};

/// Estimates all classes but the measured ones, for `world` ranks. Allocates nothing.
MemoryEstimate estimate_memory(const CheckedRecipe& checked, int64_t world);

/// Adds the classes activations and process. Runs two short trial trainings on this CPU with
/// different numbers of generated samples and extrapolates to estimate.samples. If a second trial
/// would take too long, activations cover only the first trial's samples. Adds neither class if
/// memory or time do not suffice or a trial fails. Sets not_measured in all these cases.
/// `available`: bytes that a trial may use. Call recycle_tensor_memory first
/// (runtime/device/tensor_memory.h): without it no bytes of tensors are counted.
void measure_activations(const CheckedRecipe& checked, int64_t world, int64_t available,
                         MemoryEstimate& estimate);

/// Removes the classes that do not use GPU memory: batches, checkpoint and process.
void keep_device_classes(MemoryEstimate& estimate);

/// Rough upper bound of the activations' bytes, without a trial: the number of multiply-adds of the
/// forward pass; nullopt if unknown. A linear layer spends as many of them on each output element
/// as it has inputs, usually hundreds. The bound assumes that this number exceeds the bytes kept
/// for the element and for what norms, GELU, dropout and residual sums compute from it.
std::optional<int64_t> most_activations(const CheckedRecipe& checked,
                                        const MemoryEstimate& estimate);

/// Table of the classes, their sum, and the memory of `ranks` such ranks on one machine.
std::string to_text(const MemoryEstimate& estimate, int64_t ranks);

/// Advice for a training of `world` ranks that does not fit: the largest train.batch that fits, if
/// bytes_of_sample is known, and other keys. `available_of_rank`: bytes that each rank may use.
std::string memory_hint(const CheckedRecipe& checked, const MemoryEstimate& estimate,
                        int64_t available_of_rank, int64_t world);

/// Where the ranks of a training run.
struct RunPlace {
  c10::Device device = c10::Device(c10::DeviceType::CPU);  ///< device of this rank
  int64_t ranks = 1;  ///< how many ranks of the job run on this machine
};

/// Receives one line for the user.
using Tell = std::function<void(const std::string& line)>;

/// Returns "" if a training by `world` ranks fits into memory, else a message: what a rank would
/// take and which keys to change. `available`: free bytes of this machine, or of the GPU. On CPUs,
/// trial steps measure the activations unless an upper bound of them fits; `tell` announces the
/// trial and reports its failure. On a GPU only the memory besides activations has to fit.
std::string memory_refusal(const CheckedRecipe& checked, int64_t world, const RunPlace& place,
                           int64_t available, const Tell& tell);

/// Throws ConfigError (exit 11) on every rank if rank 0 finds that the training does not fit,
/// unless run.memory_check is false. Returns the lines that rank 0 has shown on the console, for a
/// log that is not open yet. Collective.
std::vector<std::string> require_memory(const CheckedRecipe& checked, const RunPlace& place,
                                        Communicator& world, Console& console);

}  // namespace shoal
