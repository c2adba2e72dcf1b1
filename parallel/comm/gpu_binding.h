#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

namespace shoal {

/// The machine and the GPU a rank runs on.
struct RankBinding {
  int64_t rank = 0;
  std::string host;     ///< for people: two machines may share a name
  std::string machine;  ///< machine_id(): equal on ranks of one machine
  int64_t local_rank = 0;
  int64_t gpu = -1;    ///< ordinal among the GPUs visible to the rank; -1: it computes on the CPU
  std::string pci_id;  ///< of the GPU
  int64_t threads = 1;
};

/// The kernel's boot id: one per machine, containers of it included. Throws DataError if `path`
/// cannot be read.
std::string machine_id(const std::string& path = "/proc/sys/kernel/random/boot_id");

/// Collective. Every rank's binding, in rank order. `control` moves CPU tensors.
std::vector<RankBinding> gather_bindings(Communicator& control, const RankBinding& own);

/// Throws Error (kTopology), the same on all ranks, if ranks of one machine share a GPU without
/// `share_gpu`, or if some ranks have a GPU and others none. Names the ranks, hosts and PCI ids.
void check_bindings(const std::vector<RankBinding>& bindings, bool share_gpu);

/// True if some GPU is used by several ranks.
bool share_gpus(const std::vector<RankBinding>& bindings);

/// One line a rank under a heading: rank, host, local rank, GPU, PCI id, threads.
std::string binding_table(const std::vector<RankBinding>& bindings);

}  // namespace shoal
