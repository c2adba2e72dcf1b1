#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "parallel/checkpoint/manifest.h"
#include "parallel/comm/communicator.h"
#include "runtime/module/state.h"

namespace shoal {

class CheckpointReader;

/// One logical tensor of this rank's state; a stacked tensor gives one per unit. `value` shares
/// the memory of the state it was listed from.
struct StateEntry {
  SafetensorsEntry entry;
  torch::Tensor value;
};

/// All tensors and values that a Stateful lists on this rank, sorted by name.
struct StateList {
  std::vector<StateEntry> tensors;
  std::vector<ManifestValue> values;

  std::vector<SafetensorsEntry> entries() const;
  /// Throws Error (exit 70) if no tensor has this name.
  const StateEntry& find(const std::string& name) const;
};

/// Throws Error (exit 70) on a name used twice and on dtypes that checkpoints do not store. On the
/// meta device the rows of stacked tensors have no value.
StateList list_state(Stateful& state);

/// Sets the integers, reals and texts of the state. Throws Error (exit 12) at the first that the
/// manifest lacks, which require_fit rules out. Optional values (`data.fingerprint`,
/// `data.tokenizer`) that the manifest lacks stay unchanged.
void restore_values(Stateful& state, const Manifest& manifest);

/// Throws Error (exit 12) listing the entries of `here` that are missing from the manifest or
/// differ in it and, unless `ignore_extra`, manifest entries that are neither in `everywhere`, the
/// names of all ranks, nor optional values.
void require_fit(const StateList& here, const std::vector<std::string>& everywhere,
                 const Manifest& manifest, const std::string& path, bool ignore_extra);

/// The content digest of the state in memory (content_digest), equal on all ranks. Collective: each
/// tensor is hashed by one of the ranks that hold it.
std::string state_digest(Stateful& state, int64_t step, int64_t samples, Communicator& world);

/// "3", "0x1.8p+1", "'text'".
std::string describe_value(const ManifestValue& value);

torch::ScalarType scalar_type(Dtype dtype);

/// A tensor of the checkpoint, whole. Throws CheckpointError.
torch::Tensor read_tensor(const CheckpointReader& reader, const ManifestTensor& tensor);

}  // namespace shoal
