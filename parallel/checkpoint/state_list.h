#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "parallel/checkpoint/manifest.h"
#include "parallel/comm/communicator.h"
#include "runtime/module/state.h"

namespace shoal {

class CheckpointReader;

/// One tensor as checkpoints store it, under a name that does not depend on ranks: a parameter,
/// buffer or optimizer state or, of a stack of experts, the part of one expert.
struct StateEntry {
  SafetensorsEntry entry;  ///< name, dtype and shape
  torch::Tensor value;     ///< shares the memory of the state
};

/// All tensors and values (numbers, texts) that an object saves on this rank, by name.
struct StateList {
  std::vector<StateEntry> tensors;
  std::vector<ManifestValue> values;

  std::vector<SafetensorsEntry> entries() const;
  /// Throws Error (exit 70) if no tensor has this name.
  const StateEntry& find(const std::string& name) const;
};

/// Returns what `state` saves. Throws Error (exit 70, a bug) on a name used twice and on dtypes
/// that checkpoints do not store. StateEntry::value is undefined for an expert on the meta device.
StateList list_state(Stateful& state);

/// Sets the integers, reals and texts of `state` to those of a checkpoint's manifest (list of
/// contents). The optional values `data.fingerprint`, `data.tokenizer` and `trainer.patience.*`
/// stay unchanged if the manifest lacks them. Throws Error (exit 12) if any other is missing. Call
/// require_fit first.
void restore_values(Stateful& state, const Manifest& manifest);

/// Throws Error (exit 12) listing the differences if the checkpoint at `path` does not fit the
/// state `here`: tensors and values that its manifest lacks, dtypes and shapes that differ and,
/// unless `ignore_extra`, entries that no rank lists. `everywhere`: all ranks' tensor names.
void require_fit(const StateList& here, const std::vector<std::string>& everywhere,
                 const Manifest& manifest, const std::string& path, bool ignore_extra);

/// Returns the hash (content_digest) that a checkpoint of the state in memory would have, equal on
/// all ranks. Collective: each tensor is hashed by one of the ranks that hold it.
std::string state_digest(Stateful& state, int64_t step, int64_t samples, Communicator& world);

/// Returns the text of a value for messages: "3", "0x1.8p+1", "'text'".
std::string describe_value(const ManifestValue& value);

torch::ScalarType scalar_type(Dtype dtype);

/// Reads a whole tensor of the checkpoint into CPU memory. Throws CheckpointError, StorageError.
torch::Tensor read_tensor(const CheckpointReader& reader, const ManifestTensor& tensor);

}  // namespace shoal
