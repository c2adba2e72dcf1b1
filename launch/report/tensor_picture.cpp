#include "launch/report/tensor_picture.h"

#include <cstring>

// C channels  H height  W width
namespace shoal {

Picture picture_of(const torch::Tensor& pixel_CHW) {
  torch::Tensor pixels = pixel_CHW.to(torch::kCPU, torch::kFloat64);
  if (pixels.size(0) != 3) pixels = pixels.narrow(0, 0, 1).expand({3, -1, -1});
  const torch::Tensor byte_HWC = (pixels.nan_to_num(0.0).clamp(0.0, 1.0) * 255 + 0.5)
                                     .to(torch::kUInt8)
                                     .permute({1, 2, 0})
                                     .contiguous();
  Picture picture{byte_HWC.size(1), byte_HWC.size(0), {}};
  picture.pixels.resize(static_cast<size_t>(picture.width * picture.height));
  std::memcpy(picture.pixels.data(), byte_HWC.const_data_ptr(), byte_HWC.nbytes());
  return picture;
}

}  // namespace shoal
