#pragma once

#include <torch/types.h>

#include <optional>

#include "moe/exchange/dispatch_plan.h"
#include "parallel/comm/communicator.h"
#include "runtime/device/device_copy.h"

// C pieces  V units in the order of their ranks
namespace shoal {

/// Tells each rank how many rows the others send to its units: one all-to-all for all pieces, and
/// the copy of its result to the host, both in flight between construction and `wait`.
class CountExchange {
 public:
  /// Starts, in the order of the stream. Collective over `expert`, which must outlive this.
  CountExchange(torch::Tensor sent_CV, const UnitPlacement& placement, Communicator& expert);
  /// Blocks the host until the counts are there; once. Throws CommError.
  DispatchCounts wait();

 private:
  void start_copy();

  Communicator& expert_;
  torch::Tensor sent_CV_;
  torch::Tensor received_ECu_;
  Pending exchange_;
  std::optional<HostCopy> copy_;
};

}  // namespace shoal
