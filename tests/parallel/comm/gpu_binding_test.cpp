#include "parallel/comm/gpu_binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thread_communicator.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_ranks;
using testing::ScratchFolder;
using testing::write_file;

template <class Call>
Error refusal_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kTopology);
    return error;
  }
  ADD_FAILURE() << "nothing was refused";
  return {ExitCode::kOk, ""};
}

/// Two machines of two GPUs, which have the same host name and PCI ids.
std::vector<RankBinding> two_machines() {
  std::vector<RankBinding> bindings;
  for (int64_t rank = 0; rank < 4; ++rank) {
    const int64_t local = rank % 2;
    bindings.push_back({.rank = rank,
                        .host = "node",
                        .machine = rank < 2 ? "first" : "second",
                        .local_rank = local,
                        .gpu = local,
                        .pci_id = local == 0 ? "0000:3B:00.0" : "0000:5E:00.0",
                        .threads = 8});
  }
  return bindings;
}

TEST(GpuBinding, SeesWhetherGpusAreShared) {
  std::vector<RankBinding> bindings = two_machines();
  EXPECT_FALSE(share_gpus(bindings));
  bindings[1].pci_id = bindings[0].pci_id;
  EXPECT_TRUE(share_gpus(bindings));
  for (RankBinding& binding : bindings) binding.gpu = -1;
  EXPECT_FALSE(share_gpus(bindings));
}

TEST(GpuBinding, TellsMachinesApartByTheirIdAndNotByName) {
  check_bindings(two_machines(), false);
  std::vector<RankBinding> cpus = two_machines();
  for (RankBinding& binding : cpus) binding.gpu = -1;
  check_bindings(cpus, false);
}

TEST(GpuBinding, RefusesTwoRanksOnOneGpuByName) {
  std::vector<RankBinding> bindings = two_machines();
  bindings[3].gpu = 0;
  bindings[3].pci_id = bindings[2].pci_id;
  const Error error = refusal_of([&] { check_bindings(bindings, false); });
  EXPECT_THAT(error.what(), AllOf(HasSubstr("GPU 0000:3B:00.0 has ranks 2 on node, 3 on node"),
                                  Not(HasSubstr("5E"))));
  EXPECT_THAT(error.hint(), HasSubstr("parallel.share_gpu"));
  check_bindings(bindings, true);
}

TEST(GpuBinding, RefusesRanksWithoutGpuBesideRanksWithOne) {
  std::vector<RankBinding> bindings = two_machines();
  bindings[1].gpu = -1;
  const Error error = refusal_of([&] { check_bindings(bindings, true); });
  EXPECT_THAT(error.what(), HasSubstr("1 of 4 ranks have no GPU: 1 on node"));
}

TEST(GpuBinding, TableHasALineForEachRank) {
  std::vector<RankBinding> bindings = two_machines();
  bindings.resize(2);
  bindings[1].gpu = -1;
  EXPECT_EQ(binding_table(bindings),
            "rank  host  local  gpu  PCI id        threads\n"
            "   0  node      0    0  0000:3B:00.0        8\n"
            "   1  node      1  cpu  -                   8");
}

TEST(GpuBinding, MachineIdIsTheBootId) {
  const ScratchFolder folder;
  write_file(folder.file("boot_id"), "8d3c-77\n");
  EXPECT_EQ(machine_id(folder.file("boot_id")), "8d3c-77");
  EXPECT_THROW(machine_id(folder.file("absent")), DataError);
  EXPECT_EQ(machine_id(), machine_id());
}

TEST(GpuBindingRanks, GathersEveryRanksBinding) {
  run_ranks(4, [](Communicator& control) {
    const std::vector<RankBinding> all = two_machines();
    const auto own = static_cast<size_t>(control.rank());
    const std::vector<RankBinding> gathered = gather_bindings(control, all[own]);
    EXPECT_EQ(binding_table(gathered), binding_table(all));
    for (size_t rank = 0; rank < all.size(); ++rank) {
      EXPECT_EQ(gathered[rank].machine, all[rank].machine);
    }
  });
}

}  // namespace
}  // namespace shoal
