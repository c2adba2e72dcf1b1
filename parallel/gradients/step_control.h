#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/rank_grid.h"

namespace shoal {

/// One rank's flags at the end of a step; StepControl::agree combines those of all ranks.
struct StepFlags {
  int64_t stop_signal = 0;   ///< number of the signal to stop for; 0: none. Combined: the largest
  bool stop = false;         ///< another reason to stop, e.g. time. Combined: true if any is
  bool evaluate = false;     ///< an evaluation is due by the clock. Combined: true if any is
  bool save = false;         ///< a checkpoint is due by the clock. Combined: true if any is
  bool log = false;          ///< a log line is due by the clock. Combined: true if any is
  bool log_layers = false;   ///< the norms of layers are due. Combined: true if any is
  int64_t written_step = 0;  ///< step of the newest save written by this rank. Combined: the least
  double square_sum = 0.0;   ///< sum of squares of this rank's gradient share. Combined: the
                             ///< sum over ranks, which is not finite if any rank's is not

  bool wants_stop() const { return stop || stop_signal != 0; }
};

/// The one exchange of control data in an optimizer step, so that all ranks stop, evaluate, save,
/// log and clip alike: a small all-gather on a communicator of its own. All ranks get the same
/// bits.
///
/// It also detects ranks that diverge: it compares which collectives, in which order, the ranks
/// have started so far, over all groups that are split from one communicator (CallOrder). A swap of
/// two groups' calls is an error with every backend, since NCCL could not run it.
class StepControl {
 public:
  /// `gradient_sums`: the communicators that sum gradients, equally many on all ranks. Collective
  /// over grid.world, from which all these are split. `grid` and these must outlive this object.
  explicit StepControl(RankGrid& grid, const std::vector<const Communicator*>& gradient_sums = {});
  /// Returns the ranks' flags combined. Collective. Throws CommError on every rank, naming two
  /// ranks and their calls, if the ranks' calls differ; also if a communicator has failed.
  StepFlags agree(const StepFlags& own);
  /// Throws CommError if one of the compared communicators has failed.
  void throw_if_failed() const;

 private:
  [[noreturn]] void report_mismatch();

  std::unique_ptr<Communicator> comm_;
  struct Watched {
    std::string name;
    const Communicator* comm;
  };
  std::vector<Watched> watched_;
};

}  // namespace shoal
