#include "parallel/comm/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/support/communicator_contract.h"
#include "tests/support/thread_communicator.h"

namespace shoal {
namespace {

using testing::communicator_contract;
using testing::ContractCheck;
using ::testing::HasSubstr;
using testing::run_ranks;

class SelfCommunicatorContract : public ::testing::TestWithParam<ContractCheck> {};

TEST_P(SelfCommunicatorContract, Holds) {
  const auto comm = make_self_communicator();
  GetParam().check(*comm);
}

const auto kCheckName = [](const auto& info) { return info.param.name; };

INSTANTIATE_TEST_SUITE_P(All, SelfCommunicatorContract,
                         ::testing::ValuesIn(communicator_contract()), kCheckName);

class ThreadContractRanks : public ::testing::TestWithParam<ContractCheck> {};

TEST_P(ThreadContractRanks, HoldsOnOneToFourRanks) {
  for (const int64_t size : {1, 2, 3, 4}) {
    SCOPED_TRACE("size " + std::to_string(size));
    run_ranks(size, GetParam().check);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ThreadContractRanks, ::testing::ValuesIn(communicator_contract()),
                         kCheckName);

/// What run_ranks throws, as text.
std::string failure_of(int64_t size, const std::function<void(Communicator&)>& body) {
  try {
    run_ranks(size, body);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(ThreadCommunicatorRanks, RethrowsTheFirstFailureAndFreesWaitingPeers) {
  const auto body = [](Communicator& world) {
    if (world.rank() == 1) throw DataError("file 7 is short");
    all_reduce(world, torch::zeros({1}));
  };
  EXPECT_THROW(run_ranks(3, body), DataError);
  EXPECT_EQ(failure_of(3, body), "file 7 is short");
}

TEST(ThreadCommunicatorRanks, FailsWhenARankReturnsEarly) {
  const auto body = [](Communicator& world) {
    if (world.rank() == 2) return;
    world.barrier();
  };
  EXPECT_THAT(failure_of(3, body), HasSubstr("rank 2: has returned"));
}

TEST(ThreadCommunicatorRanks, FailsWhenEveryRankWaitsForAnother) {
  const auto body = [](Communicator& world) {
    const auto other = world.split(0, world.rank());
    all_reduce(world.rank() == 0 ? world : *other, torch::zeros({1}));
  };
  EXPECT_THAT(failure_of(2, body), HasSubstr("every rank waits for one that does not come"));
}

TEST(ThreadCommunicatorRanks, NamesBothCallsThatDoNotMatch) {
  const auto kinds = [](Communicator& world) {
    if (world.rank() == 0) {
      all_reduce(world, torch::zeros({4}));
    } else {
      broadcast(world, torch::zeros({4}), 0);
    }
  };
  EXPECT_THAT(failure_of(2, kinds),
              AllOf(HasSubstr("all_reduce(Float"), HasSubstr("broadcast(Float")));
  const auto sizes = [](Communicator& world) {
    all_reduce(world, torch::zeros({4 + world.rank()}));
  };
  EXPECT_THAT(failure_of(2, sizes), AllOf(HasSubstr("0, 4)"), HasSubstr("0, 5)")));
  const auto counts = [](Communicator& world) {
    const RowCounts send{1, 1};
    const RowCounts recv = world.rank() == 0 ? RowCounts{1, 2} : RowCounts{1, 1};
    const int64_t received = world.rank() == 0 ? 3 : 2;
    world.start_all_to_all(torch::zeros({2, 1}), send, torch::zeros({received, 1}), recv).wait();
  };
  EXPECT_THAT(failure_of(2, counts), HasSubstr("rank 1 sends 1 rows to rank 0, which expects 2"));
}

TEST(ThreadCommunicatorRanks, AbortEndsTheRunWithItsCode) {
  const auto body = [](Communicator& world) {
    if (world.rank() == 0) world.abort(41);
    world.barrier();
  };
  EXPECT_THROW(run_ranks(2, body), testing::ThreadRankAborted);
}

TEST(LocalRank, OfAProcessThatRunsAlone) {
  const auto comm = make_self_communicator();
  EXPECT_EQ(local_rank_of(*comm).rank, 0);
  EXPECT_EQ(local_rank_of(*comm).size, 1);
}

TEST(PendingCallDeathTest, TerminatesWhenAnUnheardFailureIsDropped) {
  EXPECT_DEATH({ const Pending pending([] { throw CommError("lost"); }, {}); }, "");
}

TEST(PendingCall, KeepsQuietWhileAnotherErrorUnwinds) {
  const auto fail = [] {
    const Pending pending([] { throw CommError("second"); }, {});
    throw DataError("first");
  };
  EXPECT_THROW(fail(), DataError);
}

}  // namespace
}  // namespace shoal
