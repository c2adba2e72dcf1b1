#pragma once

#include <string>
#include <vector>

#include "launch/check/check_recipe.h"
#include "launch/data/open_split.h"
#include "launch/job/launch_info.h"
#include "launch/job/rank_devices.h"
#include "launch/recipe/recipe.h"
#include "launch/runs/run_folder.h"
#include "launch/step/session.h"
#include "launch/train/trainer.h"
#include "runtime/base/log.h"
#include "runtime/device/device.h"

namespace shoal {

/// How this process was started.
struct RunOrigin {
  const LaunchInfo& launch;
  const std::vector<std::string>& command_line;
  const DeviceChoice& device;
  int64_t first_step = 0;  ///< steps done before this start
  std::string clock = {};  ///< the time that became train.duration's steps; "": none did
  int64_t total_steps = 0;
  std::string score_metric = {};
  int64_t parameters = 0;         ///< of the model on all ranks
  int64_t tokens_per_sample = 0;  ///< 0: the data has no tokens
};

/// True if a resume found nothing to do: it trained no step and ended in order, past train.duration
/// or at its end with a summary in the folder. Summary and report must then stay as they are.
bool leaves_run_alone(const RunFolder& folder, const TrainingResult& result);

/// Rank 0 writes resolved.yaml, each value with its origin, and env.json: versions, hosts, command,
/// ranks, threads, device, and `starts`, a list of the run's starts with first step, last step,
/// score metric, time, ranks, working directory and command. Collective. Throws StorageError.
void write_run_records(const RunFolder& folder, const LoadedRecipe& recipe, const RunOrigin& origin,
                       Communicator& world);

/// Returns model size, ranks and length of the run in a line for the log.
std::string describe_start(const Session& session, const Recipe& recipe, const RunFolder& folder);

/// Arguments of log_start.
struct RunStart {
  const CheckedRecipe& checked;
  const RankDevices& devices;
  const Session& session;
  const JobData& data;
  bool has_loads = false;      ///< earlier expert loads are known, for parallel.placement
  const std::string& weights;  ///< what load_initial_weights returned; "": nothing loaded
};

/// Logs devices, notes and warnings on the recipe, the placement of experts, where the training
/// begins and ends, and what is wrong with the data.
void log_start(const RunStart& start, Log& log);

/// True if the folder holds no summary of a run that ended in order at this step; train() then
/// makes up the last evaluation of a finished run. Collective.
bool lacks_summary(const RunFolder& folder, int64_t step, Communicator& world);

/// Numbers of corrupt samples, over all ranks, that were replaced by other samples.
struct Substituted {
  int64_t train = 0, valid = 0;
};

/// Writes summary.json, with `notes` on recipe and training, and returns the final text for the
/// user: a table with loss, the task's metrics and expert load, and the paths of written files. If
/// leaves_run_alone, writes nothing and returns why. Rank 0 only.
std::string write_summary(const RunFolder& folder, const TrainingResult& result,
                          const Substituted& substituted, const std::vector<std::string>& notes);

}  // namespace shoal
