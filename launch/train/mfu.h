#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "launch/check/check_recipe.h"
#include "launch/job/launch_info.h"
#include "launch/model/model_work.h"
#include "launch/step/session.h"
#include "runtime/base/log.h"

namespace shoal {

/// The work and the peak that model FLOPs utilisation (MFU) is relative to.
struct MfuBasis {
  ModelWork work;
  double samples_per_second_at_peak = 0.0;  ///< of all ranks together, if no token is dropped
};

/// Times matrix products on the ranks' cores (not on GPUs), warns if too many threads or other jobs
/// use the cores, and logs the peak FLOP/s and a sample's work, or why MFU is not reported. Returns
/// nullopt if no steps remain, or if a rank's peak or the model's FLOPs are unknown. Collective.
std::optional<MfuBasis> mfu_basis(const CheckedRecipe& checked, const LaunchInfo& launch,
                                  const Session& session, Log& log);

/// Measures the share of a model's training FLOPs that the steps of a run computed. Dropped choices
/// (token-expert assignments beyond capacity, for example) are not computed.
class ComputedWork {
 public:
  /// `work` and `world` outlive this.
  ComputedWork(const ModelWork& work, Communicator& world) : work_(work), world_(world) {}

  /// Adds a step's statistics of this rank. Does not wait for the GPU.
  void add(const std::vector<MoeStats>& step);
  /// Returns the share of ModelWork::training_flops that the steps since the last call computed; 1
  /// without steps. Collective; waits for the GPU if the model routes tokens to experts.
  double take_share();
  /// Sum of all steps' shares up to the last take_share(): a step without dropped choices adds 1.
  double steps() const { return steps_; }

 private:
  const ModelWork& work_;
  Communicator& world_;
  std::vector<MoeStats> choices_;  ///< since the last take_share()
  int64_t num_new_ = 0;            ///< steps since then
  double steps_ = 0.0;
};

}  // namespace shoal
