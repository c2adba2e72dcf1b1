#include "parallel/nccl/nccl_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "parallel/nccl/nccl_communicator.h"
#include "runtime/base/error.h"
#include "tests/support/fake_nccl.h"

namespace shoal {
namespace {

using testing::backend_of;
using testing::FakeNccl;
using testing::FakeRank;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

/// One rank whose transfers are over when the test says so.
class NcclWatchOfOneRank : public ::testing::Test {
 protected:
  NcclWatchOfOneRank() {
    rank_->backend.watch = std::make_shared<NcclWatch>(
        [this](const std::exception_ptr& error) { told_.set_value(error); }, 5ms);
    rank_->backend.streams.is_done = [this](const GpuEvent&) { return is_done_.load(); };
    const auto poll = rank_->backend.nccl.comm_get_async_error;
    rank_->backend.nccl.comm_get_async_error = [this, poll](NcclComm* comm, NcclResult* state) {
      const NcclResult result = poll(comm, state);
      if (fails_) *state = testing::kRemoteError;
      return result;
    };
  }

  std::unique_ptr<Communicator> connect(const NcclLimits& limits = {}) {
    rank_->backend.limits = limits;
    return make_nccl_communicator(make_self_communicator(), backend_of(rank_));
  }

  /// What was told, while this thread sleeps; nothing for so long: "".
  std::string told(std::chrono::milliseconds patience = 60s) {
    auto told = told_.get_future();
    if (told.wait_for(patience) != std::future_status::ready) return "";
    try {
      std::rethrow_exception(told.get());
    } catch (const CommError& error) {
      return error.what();
    }
  }

  /// An abort follows what was told.
  void wait_for_abort() const {
    for (int i = 0; i < 60'000 && fake_.num_aborted() == 0; ++i) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(fake_.num_aborted(), 1);
  }

  FakeNccl fake_;
  std::atomic<bool> is_done_ = false, fails_ = false;
  std::promise<std::exception_ptr> told_;
  std::shared_ptr<FakeRank> rank_ = fake_.join();  // last: its watch uses the others
};

TEST_F(NcclWatchOfOneRank, TellsAnErrorWhileTheHostSleepsAndAbortsTheCommunicator) {
  const auto comm = connect();
  Pending pending = comm->start_all_to_all(torch::zeros({3, 2}), {3}, torch::zeros({3, 2}), {3});
  comm->throw_if_failed();
  fails_ = true;
  EXPECT_THAT(told(), HasSubstr("all_to_all #0 failed on rank 0 of 1 (send [3], receive [3] rows "
                                "of 8 bytes): reported by ncclCommGetAsyncError: result 6"));
  wait_for_abort();
  try {
    comm->throw_if_failed();
    ADD_FAILURE() << "what has arrived was taken for good";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), HasSubstr("what came before call #1: rank 0 of 1 cannot go on: "
                                        "all_to_all #0 failed on rank 0 of 1"));
  }
  EXPECT_THROW(pending.wait(), CommError);
  EXPECT_THROW(all_reduce(*comm, torch::zeros({1})), CommError);
}

TEST_F(NcclWatchOfOneRank, TellsAFailureBeforeAnAbortThatBlocksAndBlocksNobody) {
  std::promise<void> ends;
  rank_->backend.nccl.comm_abort = [end = ends.get_future().share(),
                                    abort = rank_->backend.nccl.comm_abort](NcclComm* comm) {
    end.wait();
    return abort(comm);
  };
  const auto comm = connect();
  Pending pending = comm->start_all_reduce(torch::zeros({4}), ReduceOp::kSum);
  fails_ = true;
  EXPECT_THAT(told(), HasSubstr("all_reduce #0 failed on rank 0 of 1"));
  EXPECT_THROW(pending.wait(), CommError);
  EXPECT_THROW(all_reduce(*comm, torch::zeros({4})), CommError);
  ends.set_value();
  wait_for_abort();
}

// An abort frees what the thread is using.
TEST_F(NcclWatchOfOneRank, AbortsNoCommunicatorWhileItsThreadLaunchesWithinTheLimit) {
  const auto comm = connect();
  Pending early = comm->start_all_reduce(torch::zeros({4}), ReduceOp::kSum);
  rank_->backend.nccl.all_reduce = [&](const void*, void*, size_t, torch::ScalarType, ReduceOp,
                                       NcclComm*, GpuStream*) {
    fails_ = true;
    std::this_thread::sleep_for(100ms);
    EXPECT_EQ(fake_.num_aborted(), 0);
    return NcclResult::kSuccess;
  };
  Pending late = comm->start_all_reduce(torch::zeros({4}), ReduceOp::kSum);
  EXPECT_THAT(told(), HasSubstr("all_reduce #0 failed on rank 0 of 1"));
  wait_for_abort();
  EXPECT_THROW(early.wait(), CommError);
  EXPECT_THROW(late.wait(), CommError);
}

TEST_F(NcclWatchOfOneRank, TellsAnErrorAlsoWhileAThreadIsStuckInALaunch) {
  const auto comm = connect();
  Pending early = comm->start_all_reduce(torch::zeros({4}), ReduceOp::kSum);
  rank_->backend.nccl.all_reduce = [&](const void*, void*, size_t, torch::ScalarType, ReduceOp,
                                       NcclComm*, GpuStream*) {
    fails_ = true;
    wait_for_abort();
    return testing::kRemoteError;
  };
  EXPECT_THROW(comm->start_all_reduce(torch::zeros({4}), ReduceOp::kSum), CommError);
  EXPECT_THAT(told(), HasSubstr("all_reduce #0 failed on rank 0 of 1"));
  EXPECT_THROW(early.wait(), CommError);
}

TEST_F(NcclWatchOfOneRank, TellsATransferThatTakesTooLong) {
  const auto comm = connect({.transfer = 20ms});
  Pending pending = comm->start_all_reduce(torch::zeros({4}), ReduceOp::kSum);
  EXPECT_THAT(told(), HasSubstr("all_reduce #0 failed on rank 0 of 1 (send [4], receive [4] rows "
                                "of 4 bytes): still in progress after 0.02"));
  EXPECT_THROW(pending.wait(), CommError);
}

TEST_F(NcclWatchOfOneRank, SaysNothingOfTransfersThatAreOver) {
  is_done_ = true;
  const auto comm = connect({.transfer = 20ms});
  for (int64_t call = 0; call < 20; ++call) all_reduce(*comm, torch::zeros({1}));
  std::this_thread::sleep_for(50ms);
  fails_ = true;  // of nobody's transfer
  EXPECT_EQ(told(1s), "");
  fails_ = false;
}

TEST_F(NcclWatchOfOneRank, ForgetsTransfersOfACommunicatorThatIsGone) {
  {
    const auto comm = connect({.transfer = 100ms});
    all_reduce(*comm, torch::zeros({1}));
  }
  EXPECT_EQ(told(1s), "");
}

TEST_F(NcclWatchOfOneRank, WaitsForEachTransferFromTheEndOfTheOneBefore) {
  std::map<const void*, int> looks;  // by the watch alone
  std::atomic<int> num_over = 0;
  rank_->backend.streams.is_done = [&](const GpuEvent& event) {
    const bool is_over = ++looks[event.get()] > 10;
    if (is_over) ++num_over;
    return is_over;
  };
  const auto comm = connect({.transfer = 60ms});
  for (int64_t call = 0; call < 3; ++call) all_reduce(*comm, torch::zeros({1}));
  for (int i = 0; i < 60'000 && num_over < 3; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(num_over, 3);
  EXPECT_EQ(told(1s), "");
}

// A launch connects ranks, and its thread holds what orders launches for as long as that takes.
TEST_F(NcclWatchOfOneRank, AbortsACommunicatorWhoseThreadIsBlockedInNccl) {
  rank_->backend.nccl.all_reduce = [&](const void*, void*, size_t, torch::ScalarType, ReduceOp,
                                       NcclComm*, GpuStream*) {
    wait_for_abort();
    return testing::kRemoteError;
  };
  const auto comm = connect({.launch = 20ms});
  try {
    all_reduce(*comm, torch::zeros({4}));
    ADD_FAILURE() << "the error was not seen";
  } catch (const CommError& error) {  // the cause, not what NCCL makes of the abort
    EXPECT_THAT(error.what(), HasSubstr("still in progress after 0.02"));
  }
  EXPECT_THAT(told(), HasSubstr("all_reduce #0 failed on rank 0 of 1 (send [4], receive [4] rows "
                                "of 4 bytes): still in progress after 0.02"));
  EXPECT_EQ(fake_.num_aborted(), 1);
  EXPECT_THROW(comm->barrier(), CommError);
}

TEST_F(NcclWatchOfOneRank, TellsAnInitThatNeverEnds) {
  std::promise<void> gives_up;
  rank_->backend.nccl.comm_init_rank = [&](NcclComm**, int, const NcclId&, int) {
    gives_up.get_future().wait();
    return testing::kInternalError;
  };
  std::thread host([&] { EXPECT_THROW(connect({.init = 20ms}), CommError); });
  EXPECT_THAT(told(), HasSubstr("init #0 failed on rank 0 of 1: still in progress after 0.02"));
  gives_up.set_value();
  host.join();
}

TEST_F(NcclWatchOfOneRank, WaitsForeverWhereThereIsNoLimit) {
  const auto comm = connect(NcclLimits::of(kNever));
  Pending pending = comm->start_all_reduce(torch::zeros({4}), ReduceOp::kSum);
  std::thread gpu([&] {
    std::this_thread::sleep_for(50ms);
    is_done_ = true;
  });
  comm->barrier();
  gpu.join();
  EXPECT_EQ(told(100ms), "");
}

// Its own thread would finalize without the peers, and know nothing of exceptions on ours.
TEST_F(NcclWatchOfOneRank, LeavesItToOthersToTakeACommunicatorDown) {
  std::atomic<bool> looks = false;
  std::atomic<std::thread::id> taken_down_by{};
  rank_->backend.streams.is_done = [&](const GpuEvent&) {
    looks = true;
    std::this_thread::sleep_for(50ms);
    return false;
  };
  rank_->backend.nccl.comm_finalize = [&, finalize =
                                              rank_->backend.nccl.comm_finalize](NcclComm* comm) {
    taken_down_by = std::this_thread::get_id();
    return finalize(comm);
  };
  {
    const auto comm = connect();
    all_reduce(*comm, torch::zeros({1}));
    while (!looks) std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(taken_down_by.load(), std::this_thread::get_id());
  EXPECT_EQ(fake_.num_destroyed(), 1);
}

}  // namespace
}  // namespace shoal
