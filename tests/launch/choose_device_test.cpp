#include "launch/choose_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::ScratchFolder;
using testing::write_file;

class ChooseDevice : public ::testing::Test {
 protected:
  ScratchFolder folder_;
  DevicePlaces places_{folder_.file("libshoal_cuda.so"), folder_.path()};
};

TEST_F(ChooseDevice, AutoSaysThatThereIsNoGpu) {
  write_file(places_.plugin_path, "");
  const DeviceChoice choice = choose_device(DeviceKind::kAuto, {}, places_);
  EXPECT_TRUE(choice.device.is_cpu());
  EXPECT_THAT(choice.reason, HasSubstr("no GPU"));
}

TEST_F(ChooseDevice, AutoSaysThatAGpuStaysUnused) {
  write_file(places_.plugin_path, "");
  write_file(folder_.file("nvidia0"), "");
  const DeviceChoice choice = choose_device(DeviceKind::kAuto, {}, places_);
  EXPECT_TRUE(choice.device.is_cpu());
  EXPECT_THAT(choice.reason, HasSubstr("a GPU is here and stays unused"));
}

TEST_F(ChooseDevice, CudaIsNeverReplaced) {
  EXPECT_TRUE(choose_device(DeviceKind::kCpu, {}, places_).device.is_cpu());
  try {
    choose_device(DeviceKind::kCuda, {}, places_);
    ADD_FAILURE() << "cuda without a plug-in was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kTopology);
    EXPECT_THAT(error.what(), HasSubstr("no CUDA plug-in"));
  }
}

}  // namespace
}  // namespace shoal
