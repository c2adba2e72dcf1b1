#include "parallel/comm/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <vector>

#include "runtime/base/error.h"
#include "tests/support/communicator_contract.h"

namespace {

/// Sends until one is reported as failed, though its message goes; 0: none is.
int sends_to_failure = 0;
MPI_Request failed_send = MPI_REQUEST_NULL;

}  // namespace

/// In place of the library's, for libshoal.so too.
#define SEND_ARGUMENTS \
  const void *from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm
int MPI_Isend(SEND_ARGUMENTS, MPI_Request* request) {
  const bool fails = sends_to_failure > 0 && --sends_to_failure == 0;
  const int code = PMPI_Isend(from, count, type, to, tag, comm, fails ? &failed_send : request);
  return fails ? MPI_ERR_OTHER : code;
}

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

/// By an MPI whose counts end early; for a few numbers a check, or for the large.
class CutCallsContractMpi : public CommunicatorContractMpi {};

TEST_P(CutCallsContractMpi, Holds) {
  const std::string& name = GetParam().name;
  const bool is_large = name == "ExchangesLargeRows" || name == "AllReducesToEqualBits";
  const auto comm = make_mpi_communicator(is_large ? 4999 : 3);
  GetParam().check(*comm);
}

INSTANTIATE_TEST_SUITE_P(All, CutCallsContractMpi, ::testing::ValuesIn(communicator_contract()),
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

TEST(MpiCommunicatorMpi, WritesToNoBufferThatAFailedSendHasFreed) {
  const auto world = make_mpi_communicator();
  const auto comm = world->split(0, world->rank());
  if (comm->size() == 1) return;  // sends nothing
  // All others send a row to rank 0, whose last send fails before theirs begin.
  RowCounts send(comm->size(), 0), recv(comm->size(), 0);
  if (comm->rank() == 0) {
    std::fill(recv.begin() + 1, recv.end(), 1);
    std::vector<float> memory(recv.size() - 1, -1);
    bool is_freed = false;
    torch::Tensor out = torch::from_blob(
        memory.data(), {std::ssize(memory), 1}, [&](void*) { is_freed = true; }, torch::kFloat);
    sends_to_failure = static_cast<int>(memory.size());
    EXPECT_THROW(comm->start_all_to_all(torch::zeros({0, 1}), send, std::move(out), recv),
                 CommError);
    comm->barrier();
    comm->barrier();  // behind what the others have sent
    EXPECT_TRUE(!is_freed || memory == std::vector<float>(memory.size(), -1));
    MPI_Wait(&failed_send, MPI_STATUS_IGNORE);
  } else {
    comm->barrier();
    send[0] = 1;
    comm->start_all_to_all(torch::ones({1, 1}), send, torch::zeros({0, 1}), recv).wait();
    comm->barrier();
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
