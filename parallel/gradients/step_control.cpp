#include "parallel/gradients/step_control.h"

#include <string>

#include "runtime/base/error.h"

namespace shoal {
namespace {

// One MAX reduces all: what needs the least is sent as its complement, whose order is reversed.
enum Entry {
  kSignal,
  kStop,
  kEvaluate,
  kSave,
  kNonfinite,
  kWritten,
  kMostHash,
  kLeastHash,
  kNumEntries
};

std::string describe(const Communicator::Counters& counters) {
  return std::to_string(counters.all_reduce) + " all_reduce, " +
         std::to_string(counters.all_to_all) + " all_to_all, " +
         std::to_string(counters.all_gather) + " all_gather, " +
         std::to_string(counters.reduce_scatter) + " reduce_scatter, " +
         std::to_string(counters.broadcast) + " broadcast, order " +
         std::to_string(counters.order_hash);
}

}  // namespace

StepControl::StepControl(RankGrid& grid, const std::vector<const Communicator*>& gradient_sums)
    : comm_(grid.world->split(0, grid.world->rank())),
      watched_{{"world", grid.world.get()},
               {"expert", grid.expert.get()},
               {"replica", grid.replica.get()},
               {"intra_node", grid.intra_node.get()},
               {"inter_node", grid.inter_node.get()}} {
  if (grid.gpu_world) watched_.push_back({"GPU world", grid.gpu_world.get()});
  for (const Communicator* comm : gradient_sums) watched_.push_back({"gradients", comm});
}

int64_t StepControl::fingerprint() const {
  uint64_t hash = 0xcbf29ce484222325;
  for (const auto& [name, comm] : watched_) {
    hash = (hash ^ comm->counters().order_hash) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  }
  return static_cast<int64_t>(hash);
}

void StepControl::throw_if_failed() const {
  for (const auto& [name, comm] : watched_) comm->throw_if_failed();
}

StepFlags StepControl::agree(const StepFlags& own) {
  throw_if_failed();
  const torch::Tensor word = torch::empty({kNumEntries}, torch::kLong);
  auto* entry = word.data_ptr<int64_t>();
  entry[kSignal] = own.stop_signal;
  entry[kStop] = own.stop ? 1 : 0;
  entry[kEvaluate] = own.evaluate ? 1 : 0;
  entry[kSave] = own.save ? 1 : 0;
  entry[kNonfinite] = own.nonfinite ? 1 : 0;
  entry[kWritten] = ~own.written_step;
  entry[kMostHash] = fingerprint();
  entry[kLeastHash] = ~fingerprint();
  all_reduce(*comm_, word, ReduceOp::kMax);
  if (entry[kMostHash] != ~entry[kLeastHash]) report_mismatch();

  StepFlags agreed;
  agreed.stop_signal = entry[kSignal];
  agreed.stop = entry[kStop] != 0;
  agreed.evaluate = entry[kEvaluate] != 0;
  agreed.save = entry[kSave] != 0;
  agreed.nonfinite = entry[kNonfinite] != 0;
  agreed.written_step = ~entry[kWritten];
  return agreed;
}

void StepControl::report_mismatch() {
  std::string own;
  for (const auto& [name, comm] : watched_) {
    own += (own.empty() ? "" : "; ") + name + ": " + describe(comm->counters());
  }
  const std::vector<std::string> all = gather_text(*comm_, own);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw CommError("ranks have not made the same collective calls\n  rank 0: " + all[0] +
                        "\n  rank " + std::to_string(rank) + ": " + all[rank],
                    "a rank skipped, added or reordered a call since the run began");
  }
  throw CommError("ranks have not made the same collective calls");
}

}  // namespace shoal
