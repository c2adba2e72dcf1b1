#include "launch/job/peak_rate.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

TEST(PeakRate, OfAProcessorIsMeasured) {
  const auto peak = peak_rate(torch::kCPU, torch::kFloat32, std::nullopt);
  ASSERT_TRUE(peak.has_value());
  EXPECT_GT(peak->flops_per_second, 1e8);
  EXPECT_EQ(peak->source, "measured");
}

TEST(PeakRate, IsTheRecipesIfItHasOne) {
  const auto peak = peak_rate(torch::kCUDA, torch::kFloat32, 2.5);
  ASSERT_TRUE(peak.has_value());
  EXPECT_EQ(peak->flops_per_second, 2.5e12);
  EXPECT_EQ(peak->source, "run.peak_tflops");
}

TEST(PeakRate, OfGpusIsTheDenseOne) {
  EXPECT_EQ(gpu_flops("NVIDIA H100 80GB HBM3", torch::kBFloat16), 989e12);
  EXPECT_EQ(gpu_flops("NVIDIA H100 PCIe", torch::kBFloat16), 756e12);
  EXPECT_EQ(gpu_flops("NVIDIA H200", torch::kFloat32), 67e12);
  EXPECT_EQ(gpu_flops("NVIDIA A100-SXM4-80GB", torch::kBFloat16), 312e12);
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
    std::filesystem::create_directories(scratch.file(id));
    testing::write_file(scratch.file(id + "/information"),
                        "Model: \t\t " + model + "\nIRQ:   \t\t 17\n");
  };
  add("0000:17:00.0", "NVIDIA H200");
  add("0000:65:00.0", "NVIDIA H200");
  EXPECT_EQ(gpu_model(scratch.path()), "NVIDIA H200");
  add("0000:98:00.0", "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(gpu_model(scratch.path()), "") << "ranks may have either";
}

}  // namespace
}  // namespace shoal
