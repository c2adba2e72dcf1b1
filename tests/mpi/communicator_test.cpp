#include "parallel/comm/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/support/communicator_contract.h"

namespace shoal {
namespace {

using testing::communicator_contract;
using testing::ContractCheck;
using ::testing::HasSubstr;

class CommunicatorContractMpi : public ::testing::TestWithParam<ContractCheck> {};

TEST_P(CommunicatorContractMpi, Holds) {
  const auto comm = make_mpi_communicator();
  GetParam().check(*comm);
}

INSTANTIATE_TEST_SUITE_P(All, CommunicatorContractMpi, ::testing::ValuesIn(communicator_contract()),
                         [](const auto& info) { return info.param.name; });

TEST(MpiCommunicatorMpi, FindsItsRankOnTheMachine) {
  const auto comm = make_mpi_communicator();
  const LocalRank local = local_rank_of(*comm);
  EXPECT_EQ(local.rank, comm->rank());  // tests run on one machine
  EXPECT_EQ(local.size, comm->size());
}

TEST(MpiCommunicatorMpi, NamesTheCallAndThePeerWhenSizesDiffer) {
  const auto comm = make_mpi_communicator();
  if (comm->size() == 1) return;  // nobody to disagree with
  // Rank 1 sends rank 0 one row; rank 0 expects two (too few arrive) or none (too many arrive).
  for (const int64_t expected : {2, 0}) {
    const auto fresh = comm->split(0, comm->rank());
    RowCounts send(fresh->size(), 0);
    RowCounts recv(fresh->size(), 0);
    if (fresh->rank() == 1) send[0] = 1;
    if (fresh->rank() == 0) recv[1] = expected;
    const torch::Tensor in = torch::zeros({fresh->rank() == 1 ? 1 : 0, 3});
    const torch::Tensor out = torch::zeros({fresh->rank() == 0 ? expected : 0, 3});
    // Rank 0 starts when the row is there, so that its receive fails before it is waited for.
    if (fresh->rank() == 0) fresh->barrier();
    Pending pending = fresh->start_all_to_all(in, send, out, recv);
    if (fresh->rank() != 0) {
      fresh->barrier();
      EXPECT_NO_THROW(pending.wait());
      continue;
    }
    try {
      pending.wait();
      ADD_FAILURE() << "one row arrived where " << expected << " were expected";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("all_to_all #0"), HasSubstr("rank 0 of"),
                                      HasSubstr("rank 1 sent")));
    }
  }
}

TEST(MpiCommunicatorMpi, OutlivesItsPendingCalls) {
  auto comm = make_mpi_communicator();
  const int64_t size = comm->size();
  torch::Tensor sum = torch::ones({5}, torch::kDouble);
  Pending pending = comm->start_all_reduce(sum, ReduceOp::kSum);
  comm.reset();
  pending.wait();
  EXPECT_EQ(sum[4].item<double>(), static_cast<double>(size));
}

}  // namespace
}  // namespace shoal
