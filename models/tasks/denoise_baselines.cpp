#include "models/tasks/denoise_baselines.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "models/tasks/image_quality.h"
#include "models/vision/patch_embed.h"
#include "runtime/base/text.h"

// B images  C channels  H height  W width  b images on this rank  N patches  I their numbers
namespace shoal {
namespace {

constexpr const char* kNoisy = "noisy";
constexpr const char* kBlur = "gaussian_blur";
constexpr const char* kPatchAffine = "patch_affine";
constexpr const char* kLinearMmse = "linear_mmse";

/// Blur as a matrix [size, size]: row i holds the weights of the pixels that make blurred pixel i.
torch::Tensor blur_matrix(int64_t size, double width, const torch::TensorOptions& options) {
  torch::Tensor matrix = at::zeros({size, size}, torch::kFloat64);
  auto weight = matrix.accessor<double, 2>();
  const auto reach = static_cast<int64_t>(4.0 * width + 0.5);
  for (int64_t row = 0; row < size; ++row) {
    for (int64_t offset = -reach; offset <= reach; ++offset) {
      const int64_t place = ((row + offset) % (2 * size) + 2 * size) % (2 * size);
      const int64_t column = place < size ? place : 2 * size - 1 - place;
      const double distance = static_cast<double>(offset) / width;
      weight[row][column] += std::exp(-0.5 * distance * distance);
    }
  }
  return (matrix / matrix.sum(1, /*keepdim=*/true)).to(options);
}

std::unique_ptr<LinearFit> fit_of(int64_t numbers, torch::Device device) {
  if (numbers > DenoiseBaselines::kMostInputs) return nullptr;
  return std::make_unique<LinearFit>(numbers, numbers, device);
}

std::string too_many(const char* what, const char* whose, int64_t numbers) {
  return fmt::format(
      "baseline {}: left out, {} has {} numbers, and a map of more than {} is not "
      "fitted",
      what, whose, numbers, DenoiseBaselines::kMostInputs);
}

}  // namespace

torch::Tensor gaussian_blur(const torch::Tensor& image_BCHW, double width) {
  const torch::Tensor down_HH = blur_matrix(image_BCHW.size(2), width, image_BCHW.options());
  const torch::Tensor across_WW = blur_matrix(image_BCHW.size(3), width, image_BCHW.options());
  return down_HH.matmul(image_BCHW).matmul(across_WW.t());
}

DenoiseBaselines::DenoiseBaselines(const DenoiseOptions& options, const ImageShape& shape,
                                   int64_t patch, torch::Device device)
    : options_(options),
      shape_(shape),
      patch_(patch),
      psnr_of_width_(
          at::zeros({std::ssize(kWidths)}, torch::TensorOptions(torch::kFloat64).device(device))),
      patch_affine_(fit_of(shape.channels * patch * patch, device)),
      linear_mmse_(fit_of(shape.bytes(), device)) {}

int64_t DenoiseBaselines::most_samples() const {
  // Large images have more patches each.
  constexpr int64_t kImages = 40'000, kNumbers = kImages * 3 * 32 * 32;
  return std::clamp<int64_t>(kNumbers / shape_.bytes(), 1, kImages);
}

void DenoiseBaselines::add(const Batch& batch) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor noisy =
      add_noise(options_, batch.image_bCHW(), batch.context, kBaselineNoise).to(torch::kFloat64);
  const torch::Tensor clean = batch.image_bCHW().to(torch::kFloat64);
  samples_ += clean.size(0);
  for (size_t i = 0; i < kWidths.size(); ++i) {
    psnr_of_width_[static_cast<int64_t>(i)] +=
        psnr(gaussian_blur(noisy, kWidths[i]).clamp_(0.0, 1.0), clean).sum();
  }
  if (patch_affine_) {
    patch_affine_->add(patches_of(noisy, patch_).flatten(0, 1),
                       patches_of(clean, patch_).flatten(0, 1));
  }
  if (linear_mmse_) linear_mmse_->add(noisy.flatten(1), clean.flatten(1));
}

void DenoiseBaselines::fit(Communicator& world) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor samples = torch::tensor({samples_}, torch::kInt64);
  all_reduce(world, samples);
  samples_ = samples.item<int64_t>();
  const torch::Tensor sums = psnr_of_width_.to(torch::kCPU);
  all_reduce(world, sums);
  const std::span<const double> psnr_sums(sums.const_data_ptr<double>(), kWidths.size());
  blur_width_ =
      kWidths[static_cast<size_t>(std::ranges::max_element(psnr_sums) - psnr_sums.begin())];
  if (patch_affine_) patch_affine_->solve(world);
  if (linear_mmse_) linear_mmse_->solve(world);
}

std::vector<DenoiseBaselines::Restored> DenoiseBaselines::restore(
    const torch::Tensor& noisy_bCHW) const {
  std::vector<Restored> all{{kNoisy, noisy_bCHW}};
  if (blur_width_ > 0) all.push_back({kBlur, gaussian_blur(noisy_bCHW, blur_width_)});
  if (patch_affine_ && patch_affine_->is_solved()) {
    const torch::Tensor patch_NI =
        patch_affine_->predict(patches_of(noisy_bCHW, patch_).flatten(0, 1));
    all.push_back({kPatchAffine, image_of(patch_NI, noisy_bCHW.sizes(), patch_)});
  }
  if (linear_mmse_ && linear_mmse_->is_solved()) {
    const torch::Tensor whole = linear_mmse_->predict(noisy_bCHW.flatten(1));
    all.push_back({kLinearMmse, whole.view(noisy_bCHW.sizes())});
  }
  return all;
}

std::vector<NamedSum> DenoiseBaselines::evaluate(const Batch& batch) const {
  const torch::NoGradGuard no_grad;
  const torch::Tensor clean = batch.image_bCHW().to(torch::kFloat64);
  const torch::Tensor noisy =
      add_noise(options_, batch.image_bCHW(), batch.context, kEvaluationNoise).to(torch::kFloat64);
  const std::vector<Restored> all = restore(noisy);
  std::vector<torch::Tensor> values;
  for (const Restored& restored : all) {
    const torch::Tensor image = restored.image_bCHW.clamp(0.0, 1.0);
    values.push_back(psnr(image, clean).sum());
    values.push_back(ssim(image, clean).sum());
  }
  const torch::Tensor host = torch::stack(values).to(torch::kCPU);  // one wait for all
  const double* value = host.const_data_ptr<double>();
  const auto samples = static_cast<double>(clean.size(0));
  std::vector<NamedSum> sums;
  for (const Restored& restored : all) {
    sums.push_back({restored.name + ".psnr", *value++, samples});
    sums.push_back({restored.name + ".ssim", *value++, samples});
  }
  return sums;
}

std::string DenoiseBaselines::label_of(const std::string& name) const {
  if (name == kNoisy) return "noisy input";
  if (name == kBlur) return fmt::format("Gaussian blur, sigma {} pixels", blur_width_);
  const std::string fitted = fmt::format("fitted on {}", counted(samples_, "image"));
  if (name == kPatchAffine)
    return fmt::format("affine map of {0} x {0} patches, {1}", patch_, fitted);
  return "linear MMSE of whole images, " + fitted;
}

std::vector<BaselineScore> DenoiseBaselines::scores(const std::vector<NamedSum>& totals) const {
  std::vector<BaselineScore> scores;
  for (const NamedSum& total : totals) {
    constexpr std::string_view kEnd = ".psnr";
    if (!total.name.ends_with(kEnd)) continue;
    const std::string name = total.name.substr(0, total.name.size() - kEnd.size());
    BaselineScore& score = scores.emplace_back(name, label_of(name));
    if (name == kBlur) score.settings.push_back({"sigma_pixels", blur_width_});
    if (name != kNoisy) {
      score.settings.push_back(
          {"training_images", static_cast<double>(samples_), Metric::Kind::kCount});
    }
    score.metrics = {{"psnr", mean_of(totals, total.name), Metric::Kind::kNumber, "PSNR (dB)"},
                     {"ssim", mean_of(totals, name + ".ssim"), Metric::Kind::kNumber, "SSIM"}};
  }
  return scores;
}

std::vector<std::string> DenoiseBaselines::notes() const {
  std::vector<std::string> notes;
  const int64_t patch_numbers = shape_.channels * patch_ * patch_;
  if (!patch_affine_) notes.push_back(too_many(kPatchAffine, "a patch", patch_numbers));
  if (!linear_mmse_) notes.push_back(too_many(kLinearMmse, "an image", shape_.bytes()));
  return notes;
}

}  // namespace shoal
