#include "launch/machine/peak_rate.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

TEST(TimedProducts, MeasureARateAndTheShareOfTheCores) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const TimedProducts alone = time_products(torch::kFloat32);
  EXPECT_GT(alone.flops_per_second, 1e8);
  EXPECT_GT(alone.core_share, 0);
  EXPECT_LT(alone.core_share, 1.1);
  const auto cpus = static_cast<int>(std::thread::hardware_concurrency());
  at::set_num_threads(4 * cpus);
  EXPECT_LT(time_products(torch::kFloat32).core_share, 0.4) << "four threads share each core";
  at::set_num_threads(threads);
}

TEST(PeakRate, OfAProcessorIsWhatWasMeasuredOnCoresOfItsOwn) {
  PeakRate peak = peak_rate(torch::kCPU, torch::kFloat32, std::nullopt, {3e11, 0.97});
  EXPECT_EQ(peak.flops_per_second, 3e11);
  EXPECT_EQ(peak.source, "measured");
  peak = peak_rate(torch::kCPU, torch::kFloat32, std::nullopt, {3e11, 0.6});
  EXPECT_EQ(peak.flops_per_second, 0);
  EXPECT_EQ(peak.source, "the peak of shared cores cannot be measured");
}

TEST(PeakRate, IsTheRecipesIfItHasOne) {
  const PeakRate peak = peak_rate(torch::kCUDA, torch::kFloat32, 2.5, {});
  EXPECT_EQ(peak.flops_per_second, 2.5e12);
  EXPECT_EQ(peak.source, "run.peak_tflops");
}

TEST(PeakRate, OfGpusIsTheDenseOne) {
  EXPECT_EQ(gpu_flops("NVIDIA H100 80GB HBM3", torch::kBFloat16), 989e12);
  EXPECT_EQ(gpu_flops("NVIDIA H100 PCIe", torch::kBFloat16), 756e12);
  EXPECT_EQ(gpu_flops("NVIDIA H200", torch::kFloat32), 67e12);
  EXPECT_EQ(gpu_flops("NVIDIA A100-SXM4-80GB", torch::kBFloat16), 312e12);
}

TEST(PeakRate, OfFloat32WithTf32IsThatOfTensorCores) {
  EXPECT_EQ(gpu_flops("NVIDIA A100-SXM4-80GB", torch::kFloat32, /*tf32=*/true), 156e12);
  EXPECT_EQ(gpu_flops("NVIDIA H200", torch::kFloat32, /*tf32=*/true), 494.5e12);
  EXPECT_EQ(gpu_flops("NVIDIA H200", torch::kBFloat16, /*tf32=*/true), 989e12);
}

TEST(PeakRate, IsNotKnownOfOtherGpusAndDtypes) {
  EXPECT_EQ(gpu_flops("NVIDIA H20", torch::kBFloat16), std::nullopt);
  EXPECT_EQ(gpu_flops("", torch::kBFloat16), std::nullopt);
  EXPECT_EQ(gpu_flops("NVIDIA H200", torch::kInt64), std::nullopt);
}

TEST(PeakRate, FindsTheModelOfAMachinesGpus) {
  const testing::ScratchFolder scratch;
  EXPECT_EQ(gpu_model(scratch.file("none")), "");
  const auto add = [&](const std::string& id, const std::string& model) {
    const std::string folder = scratch.file("driver/nvidia/gpus/" + id);
    std::filesystem::create_directories(folder);
    testing::write_file(folder + "/information", "Model: \t\t " + model + "\nIRQ:   \t\t 17\n");
  };
  add("0000:17:00.0", "NVIDIA H200");
  add("0000:65:00.0", "NVIDIA H200");
  EXPECT_EQ(gpu_model(scratch.path()), "NVIDIA H200");
  add("0000:98:00.0", "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(gpu_model(scratch.path()), "") << "ranks may have either";
}

}  // namespace
}  // namespace shoal
