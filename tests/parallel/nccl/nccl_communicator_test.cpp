#include "parallel/nccl/nccl_communicator.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "runtime/base/error.h"
#include "runtime/device/device.h"
#include "tests/support/communicator_contract.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/thread_communicator.h"

namespace shoal {
namespace {

using ::testing::_;
using ::testing::AllOf;
using testing::backend_of;
using testing::Bfloat16;
using testing::communicator_contract;
using ::testing::Contains;
using testing::ContractCheck;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::FakeNccl;
using testing::FakeRank;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_owning_ranks;
using ::testing::StartsWith;

using Log = std::vector<std::string>;

class NcclContractRanks : public ::testing::TestWithParam<ContractCheck> {};

TEST_P(NcclContractRanks, HoldsOnOneToFourRanks) {
  for (const int64_t size : {1, 2, 3, 4}) {
    SCOPED_TRACE("size " + std::to_string(size));
    FakeNccl fake;
    run_owning_ranks(size, [&](std::unique_ptr<Communicator> control) {
      const auto comm = make_nccl_communicator(std::move(control), backend_of(fake.join()));
      GetParam().check(*comm);
    });
    EXPECT_EQ(fake.num_aborted(), 0);
    EXPECT_EQ(fake.num_destroyed(), fake.num_made());
  }
}

INSTANTIATE_TEST_SUITE_P(All, NcclContractRanks,
                         ::testing::ValuesIn(communicator_contract(Bfloat16::kMovedAndReduced)),
                         [](const auto& info) { return info.param.name; });

using Body = std::function<void(Communicator& comm, FakeRank& rank)>;

/// Each rank's log of `body`.
std::vector<Log> logs_of(int64_t size, const Body& body) {
  FakeNccl fake;
  std::vector<Log> logs(static_cast<size_t>(size));
  run_owning_ranks(size, [&](std::unique_ptr<Communicator> control) {
    const auto rank = fake.join();
    const auto comm = make_nccl_communicator(std::move(control), backend_of(rank));
    rank->log.clear();
    body(*comm, *rank);
    logs[static_cast<size_t>(comm->rank())] = rank->log;
  });
  return logs;
}

TEST(NcclCommunicatorRanks, OrdersATransferBetweenTheCurrentStreamsWork) {
  const auto logs = logs_of(2, [](Communicator& comm, FakeRank& rank) {
    const torch::Tensor in = torch::zeros({3, 2});
    const torch::Tensor out = torch::zeros({3, 2});
    const RowCounts rows = comm.rank() == 0 ? RowCounts{1, 2} : RowCounts{2, 1};
    Pending pending = comm.start_all_to_all(in, rows, out, rows);
    rank.log.emplace_back("started");
    pending.wait();
  });
  EXPECT_THAT(logs[0], ElementsAre("record current", "wait control", "copy 8", "ncclGroupStart",
                                   "ncclSend 1 16", "ncclRecv 1 16", "ncclGroupEnd",
                                   "record control", "started", "wait current"));
}

TEST(NcclCommunicatorRanks, SendsNoEmptyMessages) {
  const auto logs = logs_of(3, [](Communicator& comm, FakeRank&) {
    // Rank 0 sends rank 2 one row, nobody else has any.
    RowCounts send(3, 0);
    RowCounts recv(3, 0);
    if (comm.rank() == 0) send[2] = 1;
    if (comm.rank() == 2) recv[0] = 1;
    const torch::Tensor in = torch::ones({comm.rank() == 0 ? 1 : 0, 4}, torch::kByte);
    const torch::Tensor out = torch::zeros({comm.rank() == 2 ? 1 : 0, 4}, torch::kByte);
    comm.start_all_to_all(in, send, out, recv).wait();
    EXPECT_EQ(out.sum().item<int64_t>(), comm.rank() == 2 ? 4 : 0);
    all_reduce(comm, torch::zeros({0}));
    broadcast(comm, torch::zeros({0, 3}), 1);
  });
  for (const Log& log : logs) EXPECT_THAT(log, Not(Contains(StartsWith("copy"))));
  EXPECT_THAT(logs[0], AllOf(Contains("ncclSend 2 4"), Not(Contains(StartsWith("ncclRecv")))));
  EXPECT_THAT(logs[1], AllOf(Not(Contains(StartsWith("ncclSend"))),
                             Not(Contains(StartsWith("ncclAllReduce"))),
                             Not(Contains(StartsWith("ncclBroadcast")))));
  EXPECT_THAT(logs[2], AllOf(Contains("ncclRecv 0 4"), Not(Contains(StartsWith("ncclSend")))));
}

TEST(NcclCommunicatorRanks, TakesTheNativeCallsWhereRowsAreEven) {
  const auto logs = logs_of(3, [](Communicator& comm, FakeRank&) {
    const RowCounts two(3, 2);
    comm.start_all_gather(torch::ones({2, 2}), torch::zeros({6, 2}), two).wait();
    comm.start_reduce_scatter(torch::ones({6, 2}), torch::zeros({2, 2}), two).wait();
  });
  EXPECT_THAT(logs[1], AllOf(Contains("ncclAllGather 16"), Contains("ncclReduceScatter 4"),
                             Not(Contains("ncclGroupStart"))));
}

TEST(NcclCommunicatorRanks, GroupsMessagesAndReductionsWhereRowsAreNot) {
  const auto logs = logs_of(3, [](Communicator& comm, FakeRank& rank) {
    const RowCounts rows{2, 0, 1};
    const int64_t own = rows[static_cast<size_t>(comm.rank())];
    comm.start_all_gather(torch::ones({own, 2}), torch::zeros({3, 2}), rows).wait();
    rank.log.emplace_back("gathered");
    comm.start_reduce_scatter(torch::ones({3, 2}), torch::zeros({own, 2}), rows).wait();
  });
  EXPECT_THAT(logs[0],
              ElementsAre(_, _, "copy 16", "ncclGroupStart", "ncclSend 1 16", "ncclRecv 2 8",
                          "ncclSend 2 16", "ncclGroupEnd", _, _, "gathered", _, _, "ncclGroupStart",
                          "ncclReduce 0 4", "ncclReduce 2 2", "ncclGroupEnd", _, _));
}

TEST(NcclCommunicatorRanks, OneRankAloneCopies) {
  const auto logs = logs_of(1, [](Communicator& comm, FakeRank&) {
    const torch::Tensor out = torch::zeros({2});
    comm.start_all_to_all(torch::ones({2}), {2}, out, {2}).wait();
    EXPECT_TRUE(at::equal(out, torch::ones({2})));
  });
  EXPECT_THAT(logs[0], AllOf(Contains("copy 8"), Not(Contains(StartsWith("ncclSend")))));
}

TEST(NcclCommunicatorRanks, MakesTheStreamsOfStartAndWaitWait) {
  const auto logs = logs_of(1, [](Communicator& comm, FakeRank& rank) {
    Pending pending = comm.start_all_reduce(torch::ones({2}), ReduceOp::kSum);
    rank.current_stream = "side";
    pending.wait();
  });
  EXPECT_THAT(logs[0], ElementsAre("record current", "wait control", "ncclAllReduce 2",
                                   "record control", "wait side", "wait current"));
}

TEST(NcclCommunicatorRanks, KeepsItsBuffersUntilTheWait) {
  logs_of(2, [](Communicator& comm, FakeRank&) {
    const torch::Tensor in = torch::ones({2});
    const torch::Tensor out = torch::zeros({2});
    const auto in_before = in.use_count();
    const auto out_before = out.use_count();
    Pending pending = comm.start_all_to_all(in, {1, 1}, out, {1, 1});
    EXPECT_EQ(in.use_count(), in_before + 1);
    EXPECT_EQ(out.use_count(), out_before + 1);
    pending.wait();
    EXPECT_EQ(in.use_count(), in_before);
    EXPECT_EQ(out.use_count(), out_before);
  });
}

TEST(NcclCommunicatorRanks, PendingCallsOutliveIt) {
  FakeNccl fake;
  run_owning_ranks(2, [&](std::unique_ptr<Communicator> control) {
    auto comm = make_nccl_communicator(std::move(control), backend_of(fake.join()));
    const torch::Tensor sum = torch::ones({5}, torch::kDouble);
    Pending pending = comm->start_all_reduce(sum, ReduceOp::kSum);
    comm.reset();
    EXPECT_LT(fake.num_destroyed(), 2);  // this rank's is not
    pending.wait();
    EXPECT_EQ(sum[4].item<double>(), 2.0);
  });
  EXPECT_EQ(fake.num_destroyed(), 2);
}

/// What a test does to a rank's tables before its communicator is made.
using Change = std::function<void(FakeRank& rank)>;

/// The error that `body` ends with on one rank, in a job of that rank alone.
Error failure_of(const Change& change, const std::function<void(Communicator&)>& body,
                 const NcclLimits& limits = {}) {
  FakeNccl fake;
  const auto rank = fake.join();
  rank->backend.limits = limits;
  change(*rank);
  try {
    const auto comm = make_nccl_communicator(make_self_communicator(), backend_of(rank));
    body(*comm);
  } catch (const Error& error) {
    EXPECT_EQ(fake.num_destroyed() + fake.num_aborted(), fake.num_made());
    return error;
  }
  ADD_FAILURE() << "nothing failed";
  return {ExitCode::kOk, ""};
}

void nothing(Communicator&) {}

/// From poll number `after` on, ncclCommGetAsyncError says `state`.
Change report(NcclResult state, std::shared_ptr<bool> from_now) {
  return [=](FakeRank& rank) {
    rank.last_error = "NET/IB : Got completion from peer with status=12";
    const auto poll = rank.backend.nccl.comm_get_async_error;
    rank.backend.nccl.comm_get_async_error = [=](NcclComm* comm, NcclResult* found) {
      const NcclResult result = poll(comm, found);
      if (*from_now) *found = state;
      return result;
    };
  };
}

TEST(NcclFailure, OfTheInitNamesRankFunctionAndText) {
  const auto change = [](FakeRank& rank) {
    rank.last_error = "NET/IB : Got completion from peer with status=12";
    rank.backend.nccl.comm_init_rank = [](NcclComm**, int, const NcclId&, int) {
      return testing::kSystemError;
    };
  };
  const Error error = failure_of(change, nothing);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("init #0 failed on rank 0 of 1"),
                                  HasSubstr("ncclCommInitRankConfig: result 2"),
                                  HasSubstr("NET/IB : Got completion from peer with status=12")));
  EXPECT_THAT(error.hint(),
              AllOf(HasSubstr("NCCL_DEBUG=INFO"), Not(HasSubstr("run.hang_timeout"))));
}

TEST(NcclFailure, OfAPeerThatDoesNotComeToTheInitComesAfterItsLimit) {
  FakeNccl fake;
  run_owning_ranks(2, [&](std::unique_ptr<Communicator> control) {
    const auto alone = control->split(0, control->rank());
    if (control->rank() == 0) {
      const auto rank = fake.join();
      rank->backend.limits.init = std::chrono::milliseconds(20);
      try {
        make_nccl_communicator(std::move(control), backend_of(rank));
        ADD_FAILURE() << "connected alone";
      } catch (const CommError& error) {
        EXPECT_STREQ(error.what(), "barrier: rank 0 of 2 has waited 0.02 s for the other ranks");
      }
    }
    alone->barrier();
  });
  EXPECT_EQ(fake.num_made(), 0);
}

TEST(NcclFailure, AtOnceNamesTheFunctionAndTheRows) {
  const auto change = [](FakeRank& rank) {
    rank.backend.nccl.all_gather = [](const void*, void*, size_t, torch::ScalarType, NcclComm*,
                                      GpuStream*) { return testing::kInvalidArgument; };
  };
  const Error error = failure_of(change, [](Communicator& comm) {
    all_reduce(comm, torch::zeros({1}));
    comm.start_all_gather(torch::zeros({3, 2}), torch::zeros({3, 2}), {3}).wait();
  });
  EXPECT_THAT(error.what(), HasSubstr("all_gather #1 failed on rank 0 of 1 (send [3], receive [3] "
                                      "rows of 8 bytes): ncclAllGather: result 4"));
}

TEST(NcclFailure, ThatComesUpLaterIsThrownByTheWaitAndByEveryCallAfter) {
  const auto from_now = std::make_shared<bool>(false);
  const Error error = failure_of(report(testing::kRemoteError, from_now), [&](Communicator& comm) {
    Pending pending = comm.start_all_to_all(torch::zeros({3, 2}), {3}, torch::zeros({3, 2}), {3});
    *from_now = true;
    try {
      pending.wait();
      ADD_FAILURE() << "the error was not seen";
    } catch (const CommError& at_wait) {
      EXPECT_THAT(at_wait.what(),
                  HasSubstr("all_to_all #0 failed on rank 0 of 1 (send [3], receive "
                            "[3] rows of 8 bytes): reported by "
                            "ncclCommGetAsyncError: result 6: NET/IB"));
    }
    EXPECT_THROW(comm.barrier(), CommError);
    all_reduce(comm, torch::zeros({1}));
  });
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("rank 0 of 1 cannot go on"), HasSubstr("all_to_all #0 failed")));
}

TEST(NcclFailure, InsideAGroupClosesTheGroupFirst) {
  FakeNccl fake;
  const auto body = [&](std::unique_ptr<Communicator> control) {
    const auto rank = fake.join();
    rank->backend.nccl.send = [rank = rank.get()](const void*, size_t, torch::ScalarType, int,
                                                  NcclComm*, GpuStream*) {
      rank->log.emplace_back("ncclSend fails");
      return testing::kInternalError;
    };
    rank->backend.nccl.comm_abort = [rank = rank.get(),
                                     abort = rank->backend.nccl.comm_abort](NcclComm* comm) {
      rank->log.emplace_back("ncclCommAbort");
      return abort(comm);
    };
    const auto comm = make_nccl_communicator(std::move(control), backend_of(rank));
    comm->barrier();
    rank->log.clear();
    const auto call = [&] {
      comm->start_all_to_all(torch::zeros({1}), {0, 1}, torch::zeros({1}), {0, 1}).wait();
    };
    EXPECT_THROW(call(), CommError);
    EXPECT_THAT(rank->log, ElementsAre(_, _, "ncclGroupStart", "ncclSend fails",
                                       StartsWith("ncclRecv"), "ncclGroupEnd", "ncclCommAbort"));
  };
  const auto pair_of_ranks = [&](std::unique_ptr<Communicator> control) {
    const int64_t own = control->rank();
    if (own == 0) return body(std::move(control));
    // The peer is not what is tested, and is through with its init before this one aborts.
    make_nccl_communicator(std::move(control), backend_of(fake.join()))->barrier();
  };
  run_owning_ranks(2, pair_of_ranks);
}

TEST(NcclFailure, OfAGpuThatNeverComesToTheBarrierComesAfterItsLimit) {
  const auto change = [](FakeRank& rank) {
    rank.backend.streams.is_done = [](const GpuEvent&) { return false; };
  };
  const NcclLimits limits{.barrier = std::chrono::milliseconds(20)};
  const Error error = failure_of(
      change, [](Communicator& comm) { comm.barrier(); }, limits);
  EXPECT_THAT(error.what(), HasSubstr("barrier #0 failed on rank 0 of 1: still in progress"));
  EXPECT_THAT(error.hint(), HasSubstr("run.hang_timeout"));
  const auto brief = [](Communicator& comm) { comm.barrier(std::chrono::milliseconds(30)); };
  EXPECT_THAT(failure_of(change, brief).what(), HasSubstr("still in progress after 0.03 s"));
}

TEST(NcclFailure, OfAPeerThatDoesNotComeToTheBarrierComesAfterItsLimit) {
  FakeNccl fake;
  run_owning_ranks(2, [&](std::unique_ptr<Communicator> control) {
    const auto alone = control->split(0, control->rank());
    const auto rank = fake.join();
    rank->backend.limits = NcclLimits::of(std::chrono::milliseconds(20));
    const auto comm = make_nccl_communicator(std::move(control), backend_of(rank));
    if (comm->rank() == 0) {
      EXPECT_THROW(comm->barrier(), CommError);
    }
    alone->barrier();
  });
}

TEST(NcclCommunicatorRanks, SplitsWithoutIdsAndSharesBuffersAmongExchanges) {
  const auto logs = logs_of(2, [](Communicator& comm, FakeRank& rank) {
    const auto expert = comm.split(0, -comm.rank(), Traffic::kExchange);
    EXPECT_EQ(expert->rank(), 1 - comm.rank());
    const auto node = expert->split(expert->rank(), 0, Traffic::kExchange);
    EXPECT_EQ(node->size(), 1);
    const auto sums = comm.split(0, comm.rank(), Traffic::kGradients);
    rank.log.emplace_back("split");
    const torch::Tensor sum = torch::full({1}, 1.0 + comm.rank());
    all_reduce(*expert, sum);
    all_reduce(*sums, sum);
    EXPECT_EQ(sum.item<float>(), 6.0F);
  });
  // The sum of gradients waits for the exchange that was queued last.
  EXPECT_THAT(logs[0],
              ElementsAre("record control", "ncclCommSplit, shares", "record exchange",
                          "ncclCommSplit, shares", "record control", "ncclCommSplit", "split",
                          "record current", "wait exchange", "ncclAllReduce 1", "record exchange",
                          "wait current", "record current", "wait gradients", "wait gradients",
                          "ncclAllReduce 1", "record gradients", "wait current"));
}

TEST(NcclFailure, OfTheIdIsTheFailureOfEveryRank) {
  FakeNccl fake;
  std::mutex mutex;
  std::vector<std::string> texts(2);
  run_owning_ranks(2, [&](std::unique_ptr<Communicator> control) {
    const auto own = static_cast<size_t>(control->rank());
    const auto rank = fake.join();
    rank->last_error = "no socket interface found";
    rank->backend.nccl.get_unique_id = [](NcclId*) { return testing::kSystemError; };
    try {
      make_nccl_communicator(std::move(control), backend_of(rank));
    } catch (const Error& error) {
      EXPECT_THAT(error.hint(), HasSubstr("NCCL_DEBUG=INFO"));
      const std::lock_guard lock(mutex);
      texts[own] = error.what();
    }
  });
  EXPECT_THAT(texts, Each("ncclGetUniqueId: result 2: no socket interface found"));
}

TEST(NcclFailure, OfAnOlderLibraryNamesBothVersionsAndTheFile) {
  const auto change = [](FakeRank& rank) {
    rank.backend.nccl.get_version = [](int* version) {
      *version = 22703;
      return NcclResult::kSuccess;
    };
  };
  EXPECT_THAT(failure_of(change, nothing).what(),
              HasSubstr("/fake/libnccl.so.2 is version 2.27.3, older than the 2.28.9"));
}

TEST(NcclFailure, OfTwoVersionsInOneJobNamesTheRankOnAllRanks) {
  FakeNccl fake;
  run_owning_ranks(2, [&](std::unique_ptr<Communicator> control) {
    const auto rank = fake.join();
    if (control->rank() == 1) {
      rank->backend.nccl.get_version = [](int* version) {
        *version = 23007;
        return NcclResult::kSuccess;
      };
    }
    try {
      make_nccl_communicator(std::move(control), backend_of(rank));
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kVersionSkew);
      EXPECT_THAT(error.what(), HasSubstr("NCCL: rank 0 has 2.28.9; rank 1 has 2.30.7"));
    }
  });
}

TEST(NcclCommunicator, RefusesTensorsOnOtherDevices) {
  FakeNccl fake;
  const auto rank = fake.join();
  rank->backend.streams.device = c10::Device("cuda:1");
  const auto comm = make_nccl_communicator(make_self_communicator(), backend_of(rank));
  try {
    all_reduce(*comm, torch::zeros({1}));
    ADD_FAILURE() << "a CPU tensor was accepted";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("all_reduce: tensor is on cpu but this communicator moves "
                                        "memory of cuda:1"));
  }
}

TEST(NcclCommunicatorRanks, AbortEndsTheJobAfterNcclsAbort) {
  FakeNccl fake;
  const auto body = [&](std::unique_ptr<Communicator> control) {
    make_nccl_communicator(std::move(control), backend_of(fake.join()))->abort(40);
  };
  EXPECT_THROW(run_owning_ranks(1, body), testing::ThreadRankAborted);
  EXPECT_EQ(fake.num_aborted(), 1);
}

TEST(NcclLibrary, WritesVersionsAsNcclDoes) {
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
  EXPECT_EQ(nccl_version_text(23007), "2.30.7");
  EXPECT_EQ(nccl_version_text(2708), "2.7.8");
}

TEST(NcclLibrary, MayBeNewerThanItsHeaderButNotAnotherThanLibTorchs) {
  FakeNccl fake;
  const auto rank = fake.join();
  NcclFunctions& nccl = rank->backend.nccl;
  nccl.header_version = 22805;
  check_nccl_library(nccl);
  nccl.header_version = 22703;
  check_nccl_library(nccl);
  EXPECT_EQ(nccl_log_line(nccl), "NCCL 2.28.9 from /fake/libnccl.so.2, built with 2.27.3");
  nccl.torch_library_file = "/other/libnccl.so.2";
  try {
    check_nccl_library(nccl);
    ADD_FAILURE() << "two libraries were accepted";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("/fake/libnccl.so.2"), HasSubstr("/other/libnccl.so.2")));
  }
}

TEST(NcclLibrary, SharesAGpuFromTwoThirtyOn) {
  const auto ordered = ::testing::Pair("NCCL_LAUNCH_ORDER_IMPLICIT", "1");
  EXPECT_TRUE(nccl_environment(false, 22510).empty());
  EXPECT_THAT(nccl_environment(false, 22602), ElementsAre(ordered));
  EXPECT_THAT(nccl_environment(true, 23000),
              ElementsAre(ordered, ::testing::Pair("NCCL_MULTI_RANK_GPU_ENABLE", "1")));
  try {
    nccl_environment(true, 22809);
    ADD_FAILURE() << "2.28.9 was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kTopology);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("parallel.share_gpu"), HasSubstr("2.30"),
                                    HasSubstr("this is 2.28.9")));
  }
}

#ifdef SHOAL_TESTS_HAVE_CUDA_PLUGIN
TEST(NcclPlugin, LibraryIsLibTorchsAndNotOlderThanItsHeader) {
  load_cuda_plugin(cuda_plugin_path());
  const auto make = reinterpret_cast<MakeNcclBackend>(dlsym(RTLD_DEFAULT, kMakeNcclBackend));
  ASSERT_NE(make, nullptr);
  NcclBackend backend;
  try {
    make(0, &backend);
  } catch (const c10::Error&) {
    // Without a GPU there are no streams; the library is there all the same.
  }
  check_nccl_library(backend.nccl);
  EXPECT_THAT(nccl_log_line(backend.nccl), HasSubstr("libnccl.so.2"));
  EXPECT_FALSE(backend.nccl.get_error_string(testing::kSystemError).empty());
}
#endif

}  // namespace
}  // namespace shoal
