#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "parallel/nccl/nccl_communicator.h"
#include "parallel/nccl/nccl_functions.h"
#include "runtime/base/error.h"
#include "runtime/device/device.h"
#include "tests/support/communicator_contract.h"
#include "tests/support/staged_communicator.h"
#include "tests/support/thread_communicator.h"

namespace shoal {
namespace {

using testing::Bfloat16;
using testing::communicator_contract;
using testing::ContractCheck;
using testing::run_owning_ranks;
using testing::StagedCommunicator;

constexpr int kRanksShareGpusFrom = 23000;  // 2.30

/// One backend for the whole program, with NCCL's environment as in training. NCCL reads each
/// variable once, so that ranks may share a GPU in all tests if the library can do that.
std::shared_ptr<const NcclBackend> backend() {
  static const auto made = [] {
    const auto nccl = nccl_backend(resolve_device("cuda").device);
    const int version = nccl_version(nccl->nccl);
    for (const auto& [name, value] : nccl_environment(version >= kRanksShareGpusFrom, version)) {
      EXPECT_EQ(setenv(name.c_str(), value.c_str(), 1), 0);
    }
    return nccl;
  }();
  return made;
}

std::unique_ptr<Communicator> staged(std::unique_ptr<Communicator> control) {
  auto comm = make_nccl_communicator(std::move(control), backend());
  return std::make_unique<StagedCommunicator>(std::move(comm), backend()->streams.device);
}

class NcclContractGpu : public ::testing::TestWithParam<ContractCheck> {};

TEST_P(NcclContractGpu, HoldsOnOneRank) {
  const auto comm = staged(make_self_communicator());
  GetParam().check(*comm);
}

const auto kCheckName = [](const auto& info) { return info.param.name; };

INSTANTIATE_TEST_SUITE_P(All, NcclContractGpu,
                         ::testing::ValuesIn(communicator_contract(Bfloat16::kMovedAndReduced)),
                         kCheckName);

class NcclSharedContractGpu : public ::testing::TestWithParam<ContractCheck> {};

// Where the library cannot put two ranks on one GPU, it has to be refused by name.
TEST_P(NcclSharedContractGpu, HoldsOnTwoRanksOrTheVersionIsRefused) {
  const int version = nccl_version(backend()->nccl);
  if (version < kRanksShareGpusFrom) {
    EXPECT_THROW(nccl_environment(true, version), Error);
    return;
  }
  run_owning_ranks(2, [](std::unique_ptr<Communicator> control) {
    // Streams of its own for each rank: on one, work of a rank that waits for the other's transfer
    // would lie before that transfer.
    const at::Device gpu = backend()->streams.device;
    const c10::impl::VirtualGuardImpl streams(gpu.type());
    const c10::StreamGuard guard(streams.getStreamFromGlobalPool(gpu));
    const auto own = nccl_backend(gpu);
    auto comm = make_nccl_communicator(std::move(control), own);
    StagedCommunicator on_cpu(std::move(comm), gpu);
    GetParam().check(on_cpu);
  });
}

INSTANTIATE_TEST_SUITE_P(All, NcclSharedContractGpu,
                         ::testing::ValuesIn(communicator_contract(Bfloat16::kMovedAndReduced)),
                         kCheckName);

class NcclCommunicatorGpu : public ::testing::Test {
 protected:
  torch::Tensor filled(int64_t rows, double value) const {
    return torch::full({rows, 1024}, value, at::device(gpu_));
  }
  const at::Device gpu_ = backend()->streams.device;
  const std::unique_ptr<Communicator> comm_ =
      make_nccl_communicator(make_self_communicator(), backend());
};

TEST_F(NcclCommunicatorGpu, MovesWhatEarlierWorkOfTheStreamWrites) {
  constexpr int64_t kRows = 16384;
  torch::Tensor in = filled(kRows, 0.0);
  for (int turn = 0; turn < 200; ++turn) in.add_(1.0);  // still at it when the transfer is started
  const torch::Tensor out = filled(kRows, -1.0);
  Pending pending = comm_->start_all_to_all(in, {kRows}, out, {kRows});
  pending.wait();
  const torch::Tensor doubled = out.mul(2.0);
  EXPECT_TRUE(at::equal(doubled, filled(kRows, 400.0)));
}

TEST_F(NcclCommunicatorGpu, BuffersMayBeReusedRightAfterTheWait) {
  constexpr int64_t kRows = 16384;
  for (int turn = 0; turn < 20; ++turn) {
    const torch::Tensor out = filled(kRows, -1.0);
    {
      const torch::Tensor in = filled(kRows, turn);
      comm_->start_all_to_all(in, {kRows}, out, {kRows}).wait();
    }
    const torch::Tensor next = filled(kRows, -2.0);  // the allocator gives it the memory of `in`
    EXPECT_TRUE(at::equal(out, filled(kRows, turn)));
  }
}

TEST_F(NcclCommunicatorGpu, RefusesCpuTensors) {
  EXPECT_THROW(all_reduce(*comm_, torch::zeros({3})), c10::Error);
}

TEST_F(NcclCommunicatorGpu, LibraryIsLibTorchsAndNotOlderThanItsHeader) {
  check_nccl_library(backend()->nccl);
  EXPECT_EQ(backend()->nccl.library_file, backend()->nccl.torch_library_file);
  EXPECT_EQ(backend()->streams.pci_id.size(), 12U);
}

}  // namespace
}  // namespace shoal
