#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/tasks/denoise_options.h"
#include "models/tasks/linear_fit.h"
#include "runtime/data/data_shape.h"

// B images  C channels  H height  W width
namespace shoal {

/// Blurs each channel by a Gaussian of standard deviation `width` pixels, truncated at four
/// deviations. The border is reflected with repeated edge pixels (d c b a | a b c d). Keeps dtypes.
torch::Tensor gaussian_blur(const torch::Tensor& image_BCHW, double width);

/// Simple denoisers that evaluations compare the model with: the noisy image itself; a Gaussian
/// blur, of the width in kWidths that has the best PSNR on training images; an affine map of
/// patches, shared by all patches; and an affine map of whole images, which is linear MMSE. Both
/// maps are least-squares fits on training images, with a noise stream of their own. Results are
/// clamped to [0, 1], like the model's. Order of calls: add() of training images; fit(), without
/// which only the noisy image is evaluated; evaluate() of validation images; scores() of its sums.
class DenoiseBaselines : public Baselines {
 public:
  DenoiseBaselines(const DenoiseOptions& options, const ImageShape& shape, int64_t patch,
                   torch::Device device);
  int64_t most_samples() const override;
  void add(const Batch& batch) override;
  void fit(Communicator& world) override;
  std::vector<NamedSum> evaluate(const Batch& batch) const override;
  std::vector<BaselineScore> scores(const std::vector<NamedSum>& totals) const override;
  std::vector<std::string> notes() const override;

  /// Affine maps with more inputs than this are not fitted.
  static constexpr int64_t kMostInputs = 4096;
  static constexpr std::array kWidths{0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.5, 3.0};

 private:
  /// The images restored by one baseline.
  struct Restored {
    std::string name;
    torch::Tensor image_bCHW;
  };
  std::vector<Restored> restore(const torch::Tensor& noisy_bCHW) const;
  std::string label_of(const std::string& name) const;

  DenoiseOptions options_;
  ImageShape shape_;
  int64_t patch_;
  torch::Tensor psnr_of_width_;                            ///< summed over training images
  double blur_width_ = 0.0;                                ///< pixels; 0: not fitted yet
  int64_t samples_ = 0;                                    ///< number of images fitted on
  std::unique_ptr<LinearFit> patch_affine_, linear_mmse_;  ///< null: more than kMostInputs
};

}  // namespace shoal
