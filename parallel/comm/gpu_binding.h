#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

namespace shoal {

/// The machine and the GPU that a rank runs on. Collected at the start of a job, to refuse two
/// ranks on one GPU and to show the user which rank runs where.
struct RankBinding {
  int64_t rank = 0;        ///< rank in the whole job
  std::string host;        ///< host name, for messages only: two machines may share a name
  std::string machine;     ///< machine_id(): equal on ranks of one machine
  int64_t local_rank = 0;  ///< index among the ranks of the machine
  int64_t gpu = -1;        ///< ordinal among the GPUs visible to the rank; -1: runs on the CPU
  std::string pci_id;      ///< PCI id of the GPU; empty without one
  int64_t threads = 1;     ///< CPU threads of the rank
};

/// Returns the boot id, equal for all processes and containers of a machine. Throws DataError.
std::string machine_id(const std::string& path = "/proc/sys/kernel/random/boot_id");

/// Collective. Returns every rank's binding, in rank order. `control`: all ranks, for CPU tensors.
std::vector<RankBinding> gather_bindings(Communicator& control, const RankBinding& own);

/// Throws Error (exit 11, topology), the same on all ranks, if some ranks have a GPU and others
/// have none, or if ranks of one machine share a GPU although `share_gpu` (recipe key
/// parallel.share_gpu) is false. The message names ranks, hosts and PCI ids.
void check_bindings(const std::vector<RankBinding>& bindings, bool share_gpu);

/// True if several ranks use one GPU.
bool share_gpus(const std::vector<RankBinding>& bindings);

/// Returns a table, a line for each rank: rank, host, local rank, GPU, PCI id, threads.
std::string binding_table(const std::vector<RankBinding>& bindings);

}  // namespace shoal
