#include "runtime/device/device.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "runtime/base/build_info.h"
#include "runtime/base/error.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// A folder with device files and a plug-in that is none.
class Device : public ::testing::Test {
 protected:
  Device() {
    std::string pattern = (fs::temp_directory_path() / "device.XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    places_ = {.plugin_path = (folder_ / "libshoal_cuda.so").string(),
               .device_file_folder = folder_.string()};
  }
  ~Device() override { fs::remove_all(folder_); }

  void write(const std::string& name) { std::ofstream(folder_ / name) << "nothing\n"; }

  Error refusal(const std::string& device) {
    try {
      resolve_device(device, {}, places_);
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << device << " was accepted";
    return {ExitCode::kOk, ""};
  }

  fs::path folder_;
  DevicePlaces places_;
};

TEST_F(Device, IsTheCpuWhereAskedFor) {
  write("libshoal_cuda.so");
  write("nvidia0");
  EXPECT_TRUE(resolve_device("cpu", {}, places_).device.is_cpu());
}

TEST_F(Device, AutoIsTheCpuWithoutPluginAndSaysSo) {
  write("nvidia0");
  const DeviceChoice choice = resolve_device("auto", {}, places_);
  EXPECT_TRUE(choice.device.is_cpu());
  EXPECT_THAT(choice.reason, HasSubstr("the CUDA plug-in is not built (" + places_.plugin_path));
}

TEST_F(Device, AutoIsTheCpuWithoutGpuAndSaysSo) {
  write("libshoal_cuda.so");
  write("nvidiactl");
  write("nvidia-uvm");
  const DeviceChoice choice = resolve_device("auto", {}, places_);
  EXPECT_TRUE(choice.device.is_cpu());
  EXPECT_THAT(choice.reason, HasSubstr("no GPU"));
}

TEST_F(Device, CudaWithoutPluginIsAnErrorWithTheNextStep) {
  write("nvidia0");
  const Error error = refusal("cuda");
  EXPECT_EQ(error.code(), ExitCode::kTopology);
  EXPECT_THAT(error.what(), HasSubstr("the CUDA plug-in is not built (" + places_.plugin_path));
  const bool is_left_out = build_info().cuda_toolkit.empty();
  EXPECT_THAT(error.hint(), HasSubstr(is_left_out ? "launch/setup" : "--target program"));
}

TEST_F(Device, CudaWithoutGpuIsAnErrorWithTheNextStep) {
  write("libshoal_cuda.so");
  const Error error = refusal("cuda");
  EXPECT_EQ(error.code(), ExitCode::kTopology);
  EXPECT_THAT(error.what(), HasSubstr("no GPU"));
  EXPECT_THAT(error.hint(), HasSubstr("run.device=cpu"));
}

TEST_F(Device, PluginThatDoesNotLoadIsAnErrorInTheLoadersWords) {
  write("libshoal_cuda.so");
  write("nvidia0");
  for (const char* device : {"cuda", "auto"}) {
    const Error error = refusal(device);
    EXPECT_EQ(error.code(), ExitCode::kTopology);
    EXPECT_THAT(error.what(), HasSubstr(places_.plugin_path + ": file too short"));
    EXPECT_THAT(error.hint(), HasSubstr("launch/setup"));
  }
}

TEST_F(Device, RefusesOtherNames) { EXPECT_EQ(refusal("tpu").code(), ExitCode::kRecipe); }

TEST_F(Device, GpuIsTheLocalRankOrTheOneVisible) {
  EXPECT_EQ(gpu_of_local_rank({0}, 4), 0);
  EXPECT_EQ(gpu_of_local_rank({3}, 4), 3);
  EXPECT_EQ(gpu_of_local_rank({3}, 1), 0);  // the launcher shows each process its own
}

TEST_F(Device, GpusBeginAgainWhereTheyAreShared) {
  EXPECT_EQ(gpu_of_local_rank({.local_rank = 1, .shares = true}, 2), 1);
  EXPECT_EQ(gpu_of_local_rank({.local_rank = 2, .shares = true}, 2), 0);
}

TEST_F(Device, RefusesMoreRanksThanGpus) {
  const auto refused = [](const GpuPlace& place, int64_t num_visible) {
    try {
      gpu_of_local_rank(place, num_visible);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kTopology);
      return error;
    }
    ADD_FAILURE() << "nothing was refused";
    return Error(ExitCode::kOk, "");
  };
  const Error few = refused({2}, 2);
  EXPECT_THAT(few.what(), HasSubstr("rank 2 of this machine needs GPU 2, but only 2 are visible"));
  EXPECT_THAT(few.hint(), HasSubstr("at most 2 ranks"));
  const Error none = refused({.local_rank = 0, .shares = true}, 0);
  EXPECT_THAT(none.what(), HasSubstr("shows no GPU"));
  EXPECT_THAT(none.hint(), HasSubstr("CUDA_VISIBLE_DEVICES"));
}

TEST_F(Device, AGpuRunsKernelsOfItsGenerationOrTheNewestOlderOnes) {
  EXPECT_EQ(kernels_for(90, {90}), 90);
  EXPECT_EQ(kernels_for(80, {90}), 0);
  EXPECT_EQ(kernels_for(89, {80, 90}), 80);
  EXPECT_EQ(kernels_for(86, {80, 86, 89, 90}), 86);
  EXPECT_EQ(kernels_for(100, {80, 90}), 90) << "by the driver, from the last";
  EXPECT_EQ(kernels_for(90, {80, 100}), 0) << "the last is newer, and 80 has a binary alone";
  EXPECT_EQ(kernels_for(103, {80, 90, 100}), 100);
  EXPECT_EQ(kernels_for(100, {103}), 0);
  EXPECT_EQ(kernels_for(90, {}), 0);
}

TEST_F(Device, AGpuWithoutKernelsIsAnErrorThatNamesWhatToBuild) {
  EXPECT_NO_THROW(require_kernels(0, 90, {80, 90}));
  try {
    require_kernels(3, 75, {80, 90});
    ADD_FAILURE() << "a GPU without kernels was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kTopology);
    EXPECT_THAT(error.what(),
                HasSubstr("GPU 3 is sm_75, and the CUDA plug-in was built for sm_80, sm_90"));
    EXPECT_EQ(error.hint(), "use a GPU of capability 8.0 or newer, or set run.device=cpu");
  }
}

TEST_F(Device, AdvisesToBuildForGpusThatCanBeBuiltFor) {
  EXPECT_EQ(advice_on_kernels(80, {90, 100}), "build with -DSHOAL_CUDA_ARCHITECTURES='90;100;80'");
  EXPECT_THAT(advice_on_kernels(75, {90}), Not(HasSubstr("build")));
}

TEST_F(Device, PluginIsBesideTheLibrary) {
  EXPECT_TRUE(fs::exists(fs::path(cuda_plugin_path()).parent_path() / "libshoal.so"));
}

#ifdef SHOAL_TESTS_HAVE_CUDA_PLUGIN
TEST_F(Device, PluginLoadsWithoutGpuAndRegistersItsOperators) {
  load_cuda_plugin(cuda_plugin_path());
  load_cuda_plugin(cuda_plugin_path());
  for (const char* name : {"shoal::random_rows_",
                           "shoal::bias_activation_forward",
                           "shoal::bias_activation_backward",
                           "shoal::square_sums",
                           "shoal::lamb_",
                           "shoal::lamb_measure_",
                           "shoal::lamb_apply_",
                           "shoal::invert_rows",
                           "shoal::gather_rows",
                           "shoal::gather_sum_rows",
                           "shoal::combine_rows_backward",
                           "shoal::top_k",
                           "shoal::mark_lowest",
                           "shoal::row_softmax",
                           "shoal::row_softmax_backward",
                           "shoal::fused_router",
                           "shoal::fused_router_backward",
                           "shoal::assign_rows",
                           "shoal::expert_mlp_reads_counts",
                           "shoal::expert_mlp_forward",
                           "shoal::expert_mlp_backward",
                           "shoal::memory_lookup_forward",
                           "shoal::memory_lookup_backward",
                           "shoal::sparse_csr_multiply",
                           "shoal::sparse_csr_dots",
                           "shoal::sparse_diagonal_multiply",
                           "shoal::sparse_diagonal_dots",
                           "shoal::sparse_block_multiply",
                           "shoal::sparse_block_dots"}) {
    const auto op = c10::Dispatcher::singleton().findSchema({name, ""});
    ASSERT_TRUE(op.has_value()) << name;
    EXPECT_TRUE(op->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) << name;
  }
}

TEST_F(Device, PluginTellsWhatItWasBuiltFor) {
  load_cuda_plugin(cuda_plugin_path());
  const std::vector<int> built_for = plugin_capabilities();
  ASSERT_FALSE(built_for.empty());
  EXPECT_TRUE(std::ranges::is_sorted(built_for));
  EXPECT_GE(built_for.front(), 80);
  EXPECT_LT(built_for.back(), 200);
}

// A copy of the plug-in that asks for a library of another name, of the same length.
TEST_F(Device, PluginWithoutNcclIsAnErrorThatNamesIt) {
  std::ifstream in(cuda_plugin_path(), std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const std::string name = "libnccl.so.2", other = "libnccl.so.0";
  const size_t place = bytes.find(name + '\0');
  ASSERT_NE(place, std::string::npos);
  bytes.replace(place, name.size(), other);
  std::ofstream(places_.plugin_path, std::ios::binary) << bytes;
  write("nvidia0");
  const Error error = refusal("cuda");
  EXPECT_EQ(error.code(), ExitCode::kTopology);
  EXPECT_THAT(error.what(), HasSubstr(other + ": cannot open shared object file"));
  EXPECT_THAT(error.hint(), HasSubstr("launch/setup"));
}

TEST_F(Device, CudaIsAnErrorWhereTheDriverShowsNoGpu) {
  if (fs::exists("/dev/nvidia0")) GTEST_SKIP() << "a machine with a GPU: see DeviceGpu";
  places_.plugin_path.clear();
  write("nvidia0");
  const Error error = refusal("cuda");
  EXPECT_EQ(error.code(), ExitCode::kTopology);
  EXPECT_THAT(error.what(), HasSubstr("the CUDA driver shows no GPU"));
}
#endif

TEST(DeviceGpu, CudaAndAutoAreTheGpu) {
  EXPECT_EQ(resolve_device("cuda").device, c10::Device("cuda:0"));
  EXPECT_TRUE(resolve_device("auto").device.is_cuda());
}

}  // namespace
}  // namespace shoal
