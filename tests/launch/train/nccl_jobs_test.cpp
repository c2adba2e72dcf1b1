// Whole jobs over stand-in NCCL end as they do over the communicator of threads: with equal bits,
// or with an error on every rank.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "launch/data/recipe_source.h"
#include "launch/step/session.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/state_list.h"
#include "parallel/nccl/nccl_communicator.h"
#include "runtime/base/error.h"
#include "runtime/files/file_system.h"
#include "runtime/options/config_writer.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/model_on.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thread_communicator.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSkippedStep = 1, kJobSteps = 4;

/// What a job ends with.
struct JobEnd {
  std::vector<double> norms;  ///< of the steps' gradients; 0 where a step is skipped
  std::string digest;
  std::string checkpoint;  ///< manifest of the save
};

/// What happens on each rank while the host copies for a save may be queued.
using InSave = std::function<void()>;

/// Steps with exchange, sharded optimizer state and clipping; one is skipped; then a save.
JobEnd run_job(const Recipe& recipe, const std::string& folder, RankGrid& grid,
               const InSave& in_save) {
  const OpenSplit data = open_split(make_source(recipe), Split::kTrain);
  Session session(recipe, model_on(recipe, data, grid), data, grid);
  bool is_bad = false;
  torch::Tensor trained = session.parameters().front().tensor;
  trained.register_hook([&](const torch::Tensor& gradient) {
    return is_bad ? gradient * std::numeric_limits<double>::quiet_NaN() : gradient;
  });
  JobEnd end;
  for (int64_t step = 0; step < kJobSteps; ++step) {
    is_bad = step == kSkippedStep && grid.world->rank() == 1;
    const StepOutcome outcome = session.step({});
    EXPECT_EQ(outcome.applied, step != kSkippedStep);
    end.norms.push_back(outcome.applied ? outcome.grad_norm : 0.0);
    grid.throw_if_failed();
  }
  end.digest = state_digest(session, session.steps_done(), session.samples_done(), *grid.world);
  PosixFileSystem files;
  CheckpointWriter::Options options;
  options.folder = folder;
  options.recipe = config::canonical_text(recipe);
  options.throw_if_failed = [&] { session.throw_if_failed(); };
  CheckpointWriter writer(options, *grid.world, files);
  writer.begin(session, {kJobSteps, session.samples_done(), {}});
  if (in_save) in_save();
  const std::string saved = writer.commit().path;
  if (grid.world->rank() == 0) end.checkpoint = read_file(saved + "/manifest.json");
  return end;
}

struct Job {
  int64_t ranks, expert_ranks;
  int64_t ranks_per_node = 0;
  std::vector<std::string> overrides = {};

  Recipe recipe() const {
    return equality_recipe(joined({"parallel.shard_optimizer=true", "train.clip_norm=0.05",
                                   "train.accumulate=2", "optimizer={name: adamw, lr: 1e-2}",
                                   fmt::format("parallel.expert_ranks={}", expert_ranks)},
                                  overrides));
  }
};

/// What a test does to a rank's NCCL.
using NcclChange = std::function<void(FakeRank& nccl, int64_t rank)>;

/// Runs a job over threads, or over NCCL of a schedule.
JobEnd end_of(const Job& job, const FakeSchedule* schedule, const NcclChange& change = nullptr,
              const InSave& in_save = nullptr) {
  const ScratchFolder scratch;
  FakeNccl fake(schedule == nullptr ? FakeSchedule{} : *schedule);
  std::mutex mutex;
  JobEnd end;
  run_owning_ranks(job.ranks, [&](std::unique_ptr<Communicator> world) {
    const bool is_first = world->rank() == 0;
    std::unique_ptr<Communicator> gpu_world;
    if (schedule != nullptr) {
      const auto rank = fake.join();
      if (change) change(*rank, world->rank());
      gpu_world = make_nccl_communicator(world->split(0, world->rank()), backend_of(rank));
    }
    RankGrid grid = make_rank_grid(std::move(world), job.expert_ranks, job.ranks_per_node,
                                   std::move(gpu_world));
    const JobEnd own = run_job(job.recipe(), scratch.path(), grid, in_save);
    const std::lock_guard lock(mutex);
    if (is_first) end = own;
  });
  return end;
}

const std::vector<Job>& nccl_jobs() {
  static const std::vector<Job> all{
      {.ranks = 2, .expert_ranks = 2},
      {.ranks = 4, .expert_ranks = 2, .overrides = {"model.sparse.channel_moe.exchange.chunks=2"}},
      {.ranks = 4,
       .expert_ranks = 4,
       .ranks_per_node = 2,
       .overrides = {"model.sparse.channel_moe.exchange={hierarchical: true, chunks: 2}"}}};
  return all;
}

void expect_equal_ends(const JobEnd& actual, const JobEnd& expected) {
  EXPECT_EQ(actual.norms, expected.norms);
  EXPECT_EQ(actual.digest, expected.digest);
  EXPECT_EQ(actual.checkpoint, expected.checkpoint);
}

TEST(NcclJobsRanks, EndAsOverThreadsWithEqualBits) {
  for (const Job& job : nccl_jobs()) {
    SCOPED_TRACE(fmt::format("{} ranks, {} expert ranks", job.ranks, job.expert_ranks));
    const FakeSchedule latest;
    expect_equal_ends(end_of(job, &latest), end_of(job, nullptr));
  }
}

TEST(NcclJobsRanks, EndAlikeWithAnyScheduleOfTheStreams) {
  std::vector<JobEnd> expected;
  for (const Job& job : nccl_jobs()) expected.push_back(end_of(job, nullptr));
  for_schedules([&](const FakeSchedule& schedule) {
    const size_t job = schedule.seed % nccl_jobs().size();
    SCOPED_TRACE(fmt::format("job {}", job));
    expect_equal_ends(end_of(nccl_jobs()[job], &schedule), expected[job]);
  });
}

/// A function of NCCL's that fails on rank 1 from its `call`-th call on.
template <typename... Args>
void fail_from(std::function<NcclResult(Args...)>& function, int64_t call) {
  function = [real = function, call, made = int64_t{0}](Args... args) mutable {
    return made++ < call ? real(args...) : kInternalError;
  };
}

TEST(NcclJobsRanks, ThatFailInAnyPhaseEndOnAllRanks) {
  // The exchange, sums of gradients (of whole ones without sharded state), the weights after an
  // update, and what a host finds later.
  const std::vector<std::pair<std::string, std::function<void(NcclFunctions&)>>> phases{
      {"ncclSend", [](NcclFunctions& nccl) { fail_from(nccl.send, 40); }},
      {"ncclAllReduce", [](NcclFunctions& nccl) { fail_from(nccl.all_reduce, 1); }},
      {"ncclReduceScatter", [](NcclFunctions& nccl) { fail_from(nccl.reduce_scatter, 3); }},
      {"ncclAllGather", [](NcclFunctions& nccl) { fail_from(nccl.all_gather, 2); }},
      {"ncclCommGetAsyncError",
       [](NcclFunctions& nccl) { fail_from(nccl.comm_get_async_error, 100); }},
  };
  for (Job job : nccl_jobs()) {
    for (const auto& [name, break_it] : phases) {
      const std::string sharded = name == "ncclAllReduce" ? "false" : "true";
      job.overrides.push_back("parallel.shard_optimizer=" + sharded);
      SCOPED_TRACE(fmt::format("{} on {} ranks", name, job.ranks));
      const auto start = std::chrono::steady_clock::now();
      const FakeSchedule latest;
      try {
        end_of(job, &latest, [&, &broken = break_it](FakeRank& nccl, int64_t rank) {
          if (rank == 1) broken(nccl.backend.nccl);
        });
        ADD_FAILURE() << "ended well";
      } catch (const CommError& error) {
        // Another rank may be the first to find its communicator aborted.
        EXPECT_THAT(error.what(), HasSubstr(" failed on rank "));
      }
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
    }
  }
}

TEST(NcclJobsRanks, MakeNoCheckpointOfATransferThatFailsBeforeTheCopiesAreDone) {
  std::atomic<bool> is_broken = false;
  const auto change = [&](FakeRank& nccl, int64_t rank) {
    if (rank != 1) return;
    auto& poll = nccl.backend.nccl.comm_get_async_error;
    poll = [&is_broken, real = poll](NcclComm* comm, NcclResult* state) {
      const NcclResult result = real(comm, state);
      if (is_broken) *state = kRemoteError;
      return result;
    };
  };
  const FakeSchedule latest;
  try {
    end_of(nccl_jobs()[0], &latest, change, [&] { is_broken = true; });
    ADD_FAILURE() << "ended well";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), HasSubstr("what came before call"));
  }
}

}  // namespace
}  // namespace shoal::testing
