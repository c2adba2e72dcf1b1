#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/rank_grid.h"

namespace shoal {

/// One rank's flags at the end of a step; after `agree`, those of all ranks combined.
struct StepFlags {
  int64_t stop_signal = 0;   ///< number of the signal to stop for; 0: none. Combined: the largest
  bool stop = false;         ///< another reason to stop, e.g. time. Combined: any
  bool evaluate = false;     ///< an evaluation is due by the clock. Combined: any
  bool save = false;         ///< a checkpoint is due by the clock. Combined: any
  int64_t written_step = 0;  ///< newest step that this rank has saved. Combined: the least
  double square_sum = 0.0;   ///< sum over this rank's share of the gradients. Combined: the sum,
                             ///< which is not finite if any rank's is not

  bool wants_stop() const { return stop || stop_signal != 0; }
};

/// The one exchange of control data in a step: a small all-gather on a communicator of its own. All
/// ranks combine the same rows in the same order, so they agree to the bit.
///
/// Also compares, kind by kind and in order, all collectives that the ranks have started so far on
/// the grid's communicators and on those that sum gradients.
class StepControl {
 public:
  /// Collective over grid.world. `grid` and `gradient_sums`, the same number on all ranks, must
  /// outlive this.
  explicit StepControl(RankGrid& grid, const std::vector<const Communicator*>& gradient_sums = {});
  /// Collective. Combines the ranks' flags. If the ranks have not made the same calls, throws
  /// CommError on every rank, naming two ranks and their calls. Throws as throw_if_failed too: by
  /// now the host has waited for the step's gradients.
  StepFlags agree(const StepFlags& own);
  /// Throws CommError if one of the compared communicators has failed.
  void throw_if_failed() const;

 private:
  int64_t fingerprint() const;
  [[noreturn]] void report_mismatch();

  std::unique_ptr<Communicator> comm_;
  struct Watched {
    std::string name;
    const Communicator* comm;
  };
  std::vector<Watched> watched_;
};

}  // namespace shoal
