#include "launch/job/launch_info.h"

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>

#include "runtime/base/error.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

LaunchInfo launched(const std::map<std::string, std::string>& variables) {
  return read_launch_info([&variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

TEST(LaunchInfo, OfAProcessAloneIsAWorldOfOne) {
  const LaunchInfo info = launched({{"SLURM_NTASKS", "8"}});  // as in a batch script
  EXPECT_EQ(info.launcher, "");
  EXPECT_EQ(info.world, 1);
  EXPECT_FALSE(info.is_foreign);
  EXPECT_EQ(make_world(info)->size(), 1);
}

TEST(LaunchInfo, ComesFromOpenMpiAndFromSrunWhateverElseIsSet) {
  const std::map<std::string, std::string> foreign{{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}};
  std::map<std::string, std::string> open_mpi{{"OMPI_COMM_WORLD_SIZE", "3"},
                                              {"OMPI_COMM_WORLD_RANK", "1"}};
  std::map<std::string, std::string> slurm{
      {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_PROCID", "1"}};
  for (auto* variables : {&open_mpi, &slurm}) {
    variables->insert(foreign.begin(), foreign.end());
    const LaunchInfo info = launched(*variables);
    EXPECT_EQ(info.launcher, variables == &slurm ? "srun" : "mpirun");
    EXPECT_EQ(info.world, 3);
    EXPECT_EQ(info.rank, 1);
    EXPECT_FALSE(info.is_foreign);
  }
}

// Whether the launcher has bound a rank to CPUs of its own, by the CPUs of rank and launcher.
TEST(LaunchInfo, OfAnOpenMpiThatSetsNoVariableComesFromTheCpusOfRankAndLauncher) {
  using Cpus = int64_t (*)(int);
  const Cpus bound = [](int process) -> int64_t { return process == 0 ? 2 : 8; };
  const Cpus unbound = [](int) -> int64_t { return 8; };
  const auto is_bound = [](Cpus cpus, std::set<std::string> variables) {
    variables.insert("OMPI_COMM_WORLD_SIZE");
    return read_launch_info(
               [&variables](const std::string& name) -> std::optional<std::string> {
                 if (variables.contains(name)) return "4";
                 return std::nullopt;
               },
               cpus)
        .bound;
  };
  EXPECT_TRUE(is_bound(bound, {}));
  EXPECT_FALSE(is_bound(unbound, {}));
  // Open MPI 4 tells; all its ranks may have fewer by a wrapper such as taskset.
  const std::string version_4 = "OMPI_MCA_orte_num_nodes";
  EXPECT_FALSE(is_bound(bound, {version_4}));
  EXPECT_TRUE(is_bound(unbound, {version_4, "OMPI_MCA_orte_bound_at_launch"}));
}

TEST(LaunchInfo, OfSrunCountsTheTasksOfItsOwnNode) {
  const auto local_size = [](const char* tasks, const char* node) {
    return launched({{"SLURM_STEP_ID", "0"},
                     {"SLURM_STEP_NUM_TASKS", "5"},
                     {"SLURM_STEP_NUM_NODES", "2"},
                     {"SLURM_STEP_TASKS_PER_NODE", tasks},
                     {"SLURM_NODEID", node}})
        .local_size;
  };
  EXPECT_EQ(local_size("3,2", "0"), 3);
  EXPECT_EQ(local_size("3,2", "1"), 2);
  EXPECT_EQ(local_size("4(x2),16(x10),1", "1"), 4);
  EXPECT_EQ(local_size("4(x2),16(x10),1", "2"), 16);
  EXPECT_EQ(local_size("4(x2),16(x10),1", "11"), 16);
  EXPECT_EQ(local_size("4(x2),16(x10),1", "12"), 1);
  for (const char* unknown : {"", "3", "x", "0,0"}) {
    EXPECT_EQ(local_size(unknown, "1"), 2) << unknown;  // of all nodes alike
  }
}

TEST(LaunchInfo, KnowsTheColumnsOfTheTerminalBehindTheLauncher) {
  EXPECT_EQ(launched({{"SHOAL_COLUMNS", "132"}}).columns, 132);
  for (const char* wrong : {"", "0", "-5", "wide"}) {
    EXPECT_EQ(launched({{"SHOAL_COLUMNS", wrong}}).columns, std::nullopt) << wrong;
  }
}

TEST(LaunchInfo, OfAnotherMpiMakesNoWorld) {
  EXPECT_EQ(launched({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}}).rank, 2);
  EXPECT_EQ(launched({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}}).world, 4);
  for (const auto& variables : {std::map<std::string, std::string>{{"PMI_SIZE", "2"}},
                                {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}},
                                {{"PMI_RANK", "0"}}}) {
    try {
      make_world(launched(variables));
      FAIL() << "ranks that cannot find each other were let loose";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kTopology);
      EXPECT_THAT(error.what(), HasSubstr("train alone"));
      EXPECT_THAT(error.hint(), HasSubstr("Open MPI's mpirun"));
    }
  }
  EXPECT_EQ(make_world(launched({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}))->size(), 1);
}

TEST(Deterministic, RefusesOperatorsThatHaveNoSuchAlgorithm) {
  at::globalContext().alertNotDeterministic("some operator");
  use_deterministic_algorithms();
  EXPECT_ANY_THROW(at::globalContext().alertNotDeterministic("some operator"));
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST(ChooseThreads, TakesTheRecipesThenThoseOfTheLaunchThenAShareOfTheCpus) {
  const std::map<std::string, std::string> shared{{"OMPI_COMM_WORLD_SIZE", "100000"},
                                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "100000"}};
  std::map<std::string, std::string> told = shared;
  told["OMP_NUM_THREADS"] = "3";
  EXPECT_EQ(choose_threads(7, launched(told)), 7);
  EXPECT_EQ(choose_threads(std::nullopt, launched(told)), 3);
  EXPECT_EQ(choose_threads(std::nullopt, launched({{"OMP_NUM_THREADS", "3"}})), 3);
  EXPECT_EQ(choose_threads(std::nullopt, launched(shared)), 1);
  EXPECT_EQ(launched({{"OMP_NUM_THREADS", "4,2"}}).threads, 4);
  for (const char* wrong : {"0", "-3", "four", "4x", "100000"}) {
    EXPECT_THROW(choose_threads(std::nullopt, launched({{"OMP_NUM_THREADS", wrong}})), ConfigError)
        << wrong;
    EXPECT_EQ(choose_threads(2, launched({{"OMP_NUM_THREADS", wrong}})), 2) << wrong;
  }
}

}  // namespace
}  // namespace shoal
