#include "launch/machine/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/device/device.h"
#include "tests/support/fake_nvml.h"
#include "tests/support/forwarding_communicator.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thread_communicator.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::run_ranks;
using ::testing::StartsWith;
using Verdict = Finding::Verdict;

/// A machine made of files.
class Doctor : public ::testing::Test {
 protected:
  Doctor() {
    places_.proc = machine_.file("proc");
    places_.sys = machine_.file("sys");
    places_.dev = machine_.file("dev");
    places_.plugin_path = machine_.file("libshoal_cuda.so");
    places_.nvml = machine_.file("none");
    write("proc/cpuinfo",
          "processor\t: 0\nmodel name\t: Toy CPU\nflags\t\t: fpu avx2 fma amx_bf16\n");
    write("proc/meminfo", "MemTotal:  33554432 kB\nMemAvailable:  16777216 kB\n");
    fs::create_directories(machine_.file("dev/shm"));
  }

  void write(const std::string& name, const std::string& text) const {
    const std::string path = machine_.file(name);
    fs::create_directories(fs::path(path).parent_path());
    testing::write_file(path, text);
  }

  Finding find(const std::string& name, const LaunchInfo& launch = {}) const {
    for (const Finding& finding : examine_machine(launch, places_)) {
      if (finding.name == name) return finding;
    }
    ADD_FAILURE() << "nothing about " << name;
    return {};
  }
  Finding find_gpu(const std::string& name) const {
    for (const Finding& finding : examine_gpu(places_)) {
      if (finding.name == name) return finding;
    }
    ADD_FAILURE() << "nothing about " << name;
    return {};
  }
  /// Has NVML describe these GPUs.
  testing::FakeNvml& show(const std::vector<testing::FakeCard>& gpus) {
    places_.nvml = testing::fake_nvml_library();
    testing::FakeNvml& nvml = testing::fake_nvml(places_.nvml) = testing::FakeNvml{};
    nvml.gpus = gpus;
    return nvml;
  }

  testing::ScratchFolder machine_;
  MachinePlaces places_;
};

TEST_F(Doctor, NamesTheCpuAndItsFeatures) {
  const Finding finding = find("cpu");
  EXPECT_EQ(finding.verdict, Verdict::kOk);
  EXPECT_THAT(finding.text, HasSubstr("Toy CPU; avx2 fma amx_bf16; LibTorch uses "));
}

TEST_F(Doctor, WarnsOfACpuWithoutAvx2) {
  write("proc/cpuinfo", "model name : Old CPU\nflags : fpu sse2\n");
  EXPECT_EQ(find("cpu").verdict, Verdict::kWarn);
}

TEST_F(Doctor, WarnsOfMoreRanksThanCores) {
  EXPECT_EQ(find("cores").verdict, Verdict::kOk);
  LaunchInfo launch;
  launch.local_size = 100000;
  const Finding finding = find("cores", launch);
  EXPECT_EQ(finding.verdict, Verdict::kWarn);
  EXPECT_THAT(finding.text, HasSubstr("100000 ranks here, 1 thread each"));
}

TEST_F(Doctor, WarnsOfACpuLimitOfTheContainer) {
  write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  const Finding finding = find("cores");
  EXPECT_EQ(finding.verdict, Verdict::kWarn);
  EXPECT_THAT(finding.text, HasSubstr("the container may use 0.5"));
  EXPECT_EQ(finding.fix, "set run.threads=1");
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(find("cores").verdict, Verdict::kOk);
}

TEST_F(Doctor, ReadsMemoryAndTheContainersLimit) {
  EXPECT_THAT(find("memory").text, StartsWith("16"));
  EXPECT_EQ(find("memory").verdict, Verdict::kOk);
  write("sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(find("memory").verdict, Verdict::kOk);
  write("sys/fs/cgroup/memory.max", "1073741824\n");
  EXPECT_EQ(find("memory").verdict, Verdict::kWarn);
  EXPECT_THAT(find("memory").text, HasSubstr("the container or ulimit -v allows no more"));
}

TEST_F(Doctor, WarnsOfMissingSharedMemory) {
  fs::remove_all(machine_.file("dev/shm"));
  EXPECT_EQ(find("shared_memory").verdict, Verdict::kWarn);
  EXPECT_THAT(find("shared_memory").text, HasSubstr("No such file"));
}

TEST_F(Doctor, NamesTheMpiLibraryAndItsPlace) {
  EXPECT_THAT(find("mpi").text, ::testing::ContainsRegex("Open MPI v[0-9.]+ in /.*lib"));
  EXPECT_EQ(find("mpi").verdict, Verdict::kOk);
}

TEST_F(Doctor, SaysHowToAllowDirectCopiesWhereTheyAreRefused) {
  places_.probe_memory_access = [] { return 0; };
  EXPECT_EQ(find("cma").verdict, Verdict::kOk);
  EXPECT_EQ(find("cma").fix, "");
  places_.probe_memory_access = [] { return EPERM; };
  EXPECT_EQ(find("cma").verdict, Verdict::kWarn);
  EXPECT_THAT(find("cma").text, HasSubstr(std::strerror(EPERM)));
  EXPECT_THAT(find("cma").fix, HasSubstr("--cap-add=SYS_PTRACE"));
  write("proc/sys/kernel/yama/ptrace_scope", "1\n");
  EXPECT_THAT(find("cma").fix, HasSubstr("sysctl kernel.yama.ptrace_scope=0"));
}

TEST_F(Doctor, TakesAMachineWithoutGpuAsItIs) {
  for (const Finding& finding : examine_gpu(places_)) {
    EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.name << ": " << finding.text;
  }
  EXPECT_THAT(find_gpu("gpu").text, HasSubstr("training runs on the CPU"));
}

TEST_F(Doctor, FailsAGpuWithoutPlugin) {
  write("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t Toy GPU\nIRQ: 1\n");
  EXPECT_THAT(find_gpu("gpu").text, StartsWith("Toy GPU; NVML does not answer"));
  EXPECT_EQ(find_gpu("gpu").verdict, Verdict::kWarn);
  EXPECT_THAT(find_gpu("gpu").fix, HasSubstr("nvidia-smi"));
  const Finding finding = find_gpu("cuda_plugin");
  EXPECT_EQ(finding.verdict, Verdict::kFail);
  EXPECT_EQ(finding.code, ExitCode::kTopology);
  EXPECT_EQ(finding.text, "not built");
  EXPECT_EQ(finding.fix, how_to_build_plugin());
}

TEST_F(Doctor, TellsTheLoadersTextOfABrokenPlugin) {
  write("libshoal_cuda.so", "no library");
  EXPECT_EQ(find_gpu("cuda_plugin").verdict, Verdict::kWarn);
  write("dev/nvidia0", "");
  const Finding finding = find_gpu("cuda_plugin");
  EXPECT_EQ(finding.verdict, Verdict::kFail);
  EXPECT_THAT(finding.text, HasSubstr("libshoal_cuda.so"));
}

TEST_F(Doctor, NamesDriverCardsCapabilityAndFreeMemory) {
  show({{},
        {.name = "Toy A100", .major = 8, .minor = 6, .total = 40ull << 30, .free = 40ull << 30}});
  EXPECT_EQ(find_gpu("gpu").text,
            "driver 580.65.06 for CUDA up to 13.0; 0: Toy H100, sm_90, 79.0 GiB of 80.0 GiB free; "
            "1: Toy A100, sm_86, 40.0 GiB of 40.0 GiB free");
  EXPECT_EQ(find_gpu("gpu").verdict, Verdict::kOk);
}

TEST_F(Doctor, WarnsOfMemoryThatOthersHold) {
  show({{.free = 70ull << 30}, {}});
  EXPECT_EQ(find_gpu("gpu").verdict, Verdict::kWarn);
  EXPECT_THAT(find_gpu("gpu").fix, HasSubstr("nvidia-smi"));
}

TEST_F(Doctor, GoesByFilesWhereNvmlKnowsNoGpu) {
  write("dev/nvidia0", "");
  show({});
  EXPECT_THAT(find_gpu("gpu").text, StartsWith("unnamed GPU; NVML does not answer"));
  show({{}}).starts = false;
  EXPECT_THAT(find_gpu("gpu").text, StartsWith("unnamed GPU; NVML does not answer"));
  places_.nvml = "libm.so.6";  // without a function of NVML
  EXPECT_THAT(find_gpu("gpu").text, StartsWith("unnamed GPU; NVML does not answer"));
  testing::FakeNvml& nvml = show({{}});
  nvml.answers = false;
  nvml.cuda_version = 0;
  EXPECT_EQ(find_gpu("gpu").text,
            "driver 580.65.06 for CUDA up to unknown; 0: unnamed GPU, capability unknown, memory "
            "unknown");
  EXPECT_EQ(find_gpu("gpu").verdict, Verdict::kOk);
}

TEST_F(Doctor, TellsHowGpusAreConnected) {
  testing::FakeNvml& nvml = show({{}, {}, {}, {}});
  nvml.nvlinks = {{0, 1}};
  EXPECT_EQ(find_gpu("gpu_links").text, "NVLink 0-1, PCIe 0-2 1-2 0-3 1-3 2-3");
  nvml.nvlinks = {{0, 1}, {0, 2}, {1, 2}, {0, 3}, {1, 3}, {2, 3}};
  EXPECT_EQ(find_gpu("gpu_links").text, "NVLink between all 4 GPUs");
  show({{}});
  for (const Finding& finding : examine_gpu(places_)) EXPECT_NE(finding.name, "gpu_links");
}

#ifdef SHOAL_TESTS_HAVE_CUDA_PLUGIN
TEST_F(Doctor, FailsADriverThatIsOlderThanTheToolkit) {
  testing::FakeNvml& nvml = show({{}});
  nvml.driver = "550.54";
  nvml.cuda_version = 12040;
  EXPECT_THAT(find_gpu("gpu").text, HasSubstr("driver 550.54 for CUDA up to 12.4"));
  EXPECT_EQ(find_gpu("gpu").verdict, Verdict::kFail);
  EXPECT_EQ(find_gpu("gpu").code, ExitCode::kTopology);
  EXPECT_THAT(find_gpu("gpu").fix, HasSubstr("install a driver for CUDA 13."));
}

TEST_F(Doctor, ComparesWhatThePluginWasBuiltForWithEachGpu) {
  places_.plugin_path.clear();
  const int built = [] {
    load_cuda_plugin(cuda_plugin_path());
    return plugin_capabilities().back();
  }();
  const auto like = [](int capability) {
    return testing::FakeCard{.name = "Toy", .major = capability / 10, .minor = capability % 10};
  };
  show({like(built)});
  EXPECT_EQ(find_gpu("cuda_plugin").verdict, Verdict::kOk) << find_gpu("cuda_plugin").text;
  EXPECT_THAT(find_gpu("cuda_plugin").text, HasSubstr(" for sm_"));
  show({like(built), like(75)});
  EXPECT_EQ(find_gpu("cuda_plugin").verdict, Verdict::kWarn) << "the other GPU runs kernels";
  EXPECT_EQ(
      find_gpu("cuda_plugin").fix,
      "GPU 1 runs no kernels: hide it by CUDA_DEVICE_ORDER=PCI_BUS_ID and CUDA_VISIBLE_DEVICES, "
      "or use a GPU of capability 8.0 or newer");
  show({like(75), like(75)});
  EXPECT_EQ(find_gpu("cuda_plugin").verdict, Verdict::kFail);
  EXPECT_EQ(find_gpu("cuda_plugin").code, ExitCode::kTopology);
  EXPECT_EQ(find_gpu("cuda_plugin").fix, "use a GPU of capability 8.0 or newer");
  show({like(built + 30)});
  EXPECT_EQ(find_gpu("cuda_plugin").verdict, Verdict::kWarn);
  EXPECT_THAT(find_gpu("cuda_plugin").fix, HasSubstr("the driver compiles kernels"));
  show({like(built)}).answers = false;
  EXPECT_EQ(find_gpu("cuda_plugin").verdict, Verdict::kOk) << "what is not known is not refused";
}
#endif

TEST(DoctorBuild, FindsTheLibTorchItWasBuiltWith) {
  for (const Finding& finding : examine_build()) {
    EXPECT_NE(finding.verdict, Verdict::kFail) << finding.text;
    EXPECT_THAT(finding.text, ::testing::MatchesRegex(".*[0-9]+\\.[0-9]+.*"));
  }
}

TEST(DoctorWorld, PassesDataRoundTheRing) {
  for (const int64_t size : {1, 2, 3}) {
    run_ranks(size, [size](Communicator& world) {
      const std::vector<Finding> findings = examine_world(world);
      EXPECT_EQ(exit_code_of(findings), ExitCode::kOk) << to_lines(findings);
      ASSERT_EQ(findings.size(), 2u);
      EXPECT_THAT(findings[0].text, StartsWith(std::to_string(size) + " on "));
      EXPECT_THAT(findings[1].text,
                  HasSubstr(size == 1 ? "start under mpirun" : std::to_string(size) + " ranks"));
    });
  }
}

/// A communicator that damages what the last rank receives.
class Damaging : public testing::ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  Pending start_all_to_all(torch::Tensor in, const RowCounts& send_rows, torch::Tensor out,
                           const RowCounts& recv_rows) override {
    inner_.start_all_to_all(in, send_rows, out, recv_rows).wait();
    if (rank() == size() - 1) out.view(-1)[-1] += 1;
    return {};
  }
};

TEST(DoctorWorld, NamesTheRankThatReceivesWrongData) {
  run_ranks(3, [](Communicator& world) {
    Damaging damaging(world);
    const std::vector<Finding> findings = examine_world(damaging);
    EXPECT_EQ(findings[1].verdict, Verdict::kFail);
    EXPECT_THAT(findings[1].text, HasSubstr("wrong data on ranks 2"));
    EXPECT_EQ(exit_code_of(findings), ExitCode::kInternal);
  });
}

TEST(DoctorWorld, ExaminesEachMachineOnce) {
  run_ranks(2, [](Communicator& world) {
    LaunchInfo launch;
    launch.world = 2;
    launch.local_size = 2;
    launch.local_rank = world.rank();
    int64_t cpus = 0;
    for (const Finding& finding : examine_all(launch, world)) cpus += finding.name == "cpu";
    EXPECT_EQ(cpus, 1);
  });
}

TEST(DoctorReport, PrintsOneLineAFinding) {
  const std::vector<Finding> findings = {
      {"a", "cpu", Verdict::kOk, "fast", "", ExitCode::kOk},
      {"a", "memory", Verdict::kWarn, "little", "buy some", ExitCode::kOk}};
  EXPECT_EQ(to_lines(findings),
            "ok    cpu     fast\n"
            "warn  memory  little; fix: buy some\n");
}

TEST(DoctorReport, NamesMachinesWhereThereAreSeveral) {
  const std::vector<Finding> findings = {{"a", "cpu", Verdict::kOk, "fast", "", ExitCode::kOk},
                                         {"b", "cpu", Verdict::kOk, "slow", "", ExitCode::kOk},
                                         {"", "ring", Verdict::kOk, "round", "", ExitCode::kOk}};
  EXPECT_EQ(to_lines(findings), "ok    cpu   a: fast\nok    cpu   b: slow\nok    ring  round\n");
}

TEST(DoctorReport, GivesTheCodeOfTheFirstFailure) {
  std::vector<Finding> findings = {{"", "a", Verdict::kWarn, "", "", ExitCode::kData}};
  EXPECT_EQ(exit_code_of(findings), ExitCode::kOk);
  findings.push_back({"", "b", Verdict::kFail, "", "", ExitCode::kVersionSkew});
  findings.push_back({"", "c", Verdict::kFail, "", "", ExitCode::kTopology});
  EXPECT_EQ(exit_code_of(findings), ExitCode::kVersionSkew);
}

TEST(DoctorReport, IsOneJsonObject) {
  const std::vector<Finding> findings = {
      {"a", "cpu", Verdict::kFail, "bad \xff bytes", "fix it", ExitCode::kTopology}};
  const std::string text = to_json(findings);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const auto value = nlohmann::json::parse(text);
  EXPECT_FALSE(value.at("ok").get<bool>());
  EXPECT_EQ(value.at("exit_code").get<int>(), 11);
  EXPECT_EQ(value.at("checks").at(0).at("name").get<std::string>(), "cpu");
  EXPECT_EQ(value.at("checks").at(0).at("verdict").get<std::string>(), "fail");
  EXPECT_EQ(value.at("checks").at(0).at("fix").get<std::string>(), "fix it");
}

}  // namespace
}  // namespace shoal
