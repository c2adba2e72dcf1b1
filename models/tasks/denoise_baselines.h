#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/baselines.h"
#include "models/tasks/image_noise.h"
#include "models/tasks/linear_fit.h"
#include "runtime/data/data_shape.h"

// B images  C channels  H height  W width
namespace shoal {

/// Blurs each channel with a Gaussian of this standard deviation in pixels, truncated at four of
/// them; beyond the border the image is reflected, with its edge pixels repeated (d c b a | a b c
/// d). Returns the images' dtype.
torch::Tensor gaussian_blur(const torch::Tensor& image_BCHW, double width);

/// Baselines of denoising: the noisy image itself; a Gaussian blur, with the width of kWidths that
/// has the best PSNR on training images; an affine map of patches of the model's size, the same for
/// all; and one of whole images, which is linear MMSE. Both maps minimise the squared error on
/// training images. Results are clamped to [0, 1] like the model's. Training images have a noise
/// stream of their own.
class DenoiseBaselines : public Baselines {
 public:
  DenoiseBaselines(const ImageNoise& noise, const ImageShape& shape, int64_t patch,
                   torch::Device device);
  int64_t most_samples() const override;
  void add(const Batch& batch) override;
  void fit(Communicator& world) override;
  std::vector<NamedSum> evaluate(const Batch& batch) const override;
  std::vector<BaselineScore> scores(const std::vector<NamedSum>& totals) const override;
  std::vector<std::string> notes() const override;

  /// Maps with more inputs than this are not fitted.
  static constexpr int64_t kMostInputs = 4096;
  static constexpr std::array kWidths{0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.5, 3.0};

 private:
  /// Images restored by one baseline.
  struct Restored {
    std::string name;
    torch::Tensor image_bCHW;
  };
  std::vector<Restored> restore(const torch::Tensor& noisy_bCHW) const;
  std::string label_of(const std::string& name) const;

  ImageNoise noise_;
  ImageShape shape_;
  int64_t patch_;
  torch::Tensor psnr_of_width_;                            ///< sums over training images
  double blur_width_ = 0.0;                                ///< pixels; 0 until fitted
  int64_t samples_ = 0;                                    ///< number of training images fitted on
  std::unique_ptr<LinearFit> patch_affine_, linear_mmse_;  ///< null: too many inputs
};

}  // namespace shoal
