#include <ATen/ops/mse_loss.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "models/tasks/denoise_baselines.h"
#include "models/tasks/denoise_options.h"
#include "models/tasks/image_quality.h"
#include "models/vision/patch_embed.h"
#include "runtime/base/error.h"
#include "runtime/device/real_types.h"
#include "runtime/module/products.h"

// b samples on this rank  C channels  H height  W width  S tokens  D features  P patch
namespace shoal {
namespace {

/// Denoising: restores images in [0, 1] from Gaussian noise, by a transposed convolution of the
/// backbone's tokens. Noise is keyed by the sample's position in the data stream, so it differs in
/// every epoch and is the same in every evaluation.
///
/// Parameters: head.weight [D, C P P], the flattened kernel [D, C, P, P] of the transposed
/// convolution, and head.bias [C]. Source: the adaptive sparse-attention denoiser, section 4.
class Denoise : public Task, public CountsProducts {
 public:
  using Options = DenoiseOptions;

  Denoise(const Options& options, const Context& context)
      : options_(options), shape_(require_images(context.data, "task.name", "denoise")) {
    if (!context.data.has_unit_pixels) {
      throw ConfigError(
          "data.normalise: task denoise needs pixels in [0, 1]; set mean to 0 and std to 1 for "
          "each channel");
    }
    if (std::min(shape_.height, shape_.width) < kSsimWindow) {
      throw ConfigError(fmt::format(
          "task.name: denoise measures SSIM over windows of {0} x {0} pixels, images are {1} x {2}",
          kSsimWindow, shape_.height, shape_.width));
    }
    backbone_ = register_module("backbone", context.make_backbone("backbone", Features::kTokens));
    patch_ = backbone_->patch();
    if (patch_ == 0) {
      throw ConfigError(
          "model.backbone: task denoise needs a token for each patch of the image and no others; "
          "use a model of patches, with pool: mean where it may have a class token");
    }
    head_ =
        register_module("head", std::make_shared<Head>(backbone_->feature_width(), shape_.channels,
                                                       patch_, context.build.tensor_options));
  }

  TrainOutput train(const Batch& batch) override {
    const StepContext& step = batch.context;
    TORCH_CHECK(step.samples_in_step > 0, "train needs StepContext::samples_in_step");
    const torch::Tensor clean = batch.image_bCHW();
    ModelOutput output;
    torch::Tensor restored = restore(noisy_of(batch), batch, output);
    if (options_.clamp_loss) restored = restored.clamp(0.0, 1.0);
    const torch::Tensor loss =
        at::mse_loss(at_least_float32(restored), at_least_float32(clean), at::Reduction::Sum) /
        static_cast<double>(step.samples_in_step * shape_.bytes());
    return {add_loss(loss, output.auxiliary_loss), std::move(output.moe)};
  }

  torch::Tensor outputs(const Batch& batch) override {
    ModelOutput output;
    return restore(noisy_of(batch), batch, output).flatten(1);
  }

  EvalOutput evaluate(const Batch& batch) override {
    const torch::NoGradGuard no_grad;
    const torch::Tensor clean = batch.image_bCHW();
    ModelOutput output;
    const torch::Tensor restored = restore(noisy_of(batch), batch, output).clamp(0.0, 1.0);
    const torch::Tensor error_b = (restored - clean).to(torch::kFloat64).square().mean({1, 2, 3});
    const torch::Tensor host =
        torch::stack({error_b.sum(), psnr(restored, clean).sum(), ssim(restored, clean).sum()})
            .to(torch::kCPU);  // one wait for all
    const double* value = host.const_data_ptr<double>();
    const auto samples = static_cast<double>(clean.size(0));
    return {{{"loss", value[0], samples}, {"psnr", value[1], samples}, {"ssim", value[2], samples}},
            std::move(output.moe)};
  }

  torch::Tensor restored(const Batch& batch) override {
    const torch::NoGradGuard no_grad;
    ModelOutput output;
    return at_least_float32(restore(batch.image_bCHW(), batch, output).clamp(0.0, 1.0));
  }

  std::vector<Metric> metrics(const std::vector<NamedSum>& totals) const override {
    const double error = mean_of(totals, "loss");
    return {{"loss", error, Metric::Kind::kLoss},
            {"psnr", mean_of(totals, "psnr"), Metric::Kind::kNumber, "PSNR (dB)"},
            {"psnr_of_mean", psnr_of(error), Metric::Kind::kNumber, "PSNR of the mean error (dB)"},
            {"ssim", mean_of(totals, "ssim"), Metric::Kind::kNumber, "SSIM"}};
  }

  std::shared_ptr<Baselines> baselines() const override {
    return std::make_shared<DenoiseBaselines>(options_, shape_, patch_, head_->weight.device());
  }

  std::vector<PictureColumn> pictures(const Batch& batch) override {
    const torch::NoGradGuard no_grad;
    const torch::Tensor clean = batch.image_bCHW(), noisy = noisy_of(batch);
    const torch::Tensor shown = noisy.clamp(0.0, 1.0);
    ModelOutput output;
    const torch::Tensor restored = restore(noisy, batch, output).clamp(0.0, 1.0);
    return {{"clean", clean},
            {"noisy", shown, "PSNR (dB)", psnr(shown, clean)},
            {"restored", restored, "PSNR (dB)", psnr(restored, clean)},
            {fmt::format("absolute difference of clean and restored x {}", kDifferenceScale),
             ((restored - clean).abs() * kDifferenceScale).clamp(0.0, 1.0)}};
  }

  ScoreRule score() const override { return {"psnr", /*higher_is_better=*/true}; }
  RateUnit unit() const override { return {"img"}; }
  void list_products(double rows, ProductList& list) const override {
    list.visit(*head_, rows * static_cast<double>(shape_.pixels() / (patch_ * patch_)));
  }

 private:
  static constexpr int64_t kDifferenceScale = 4;

  struct Head : ModuleBase {
    Head(int64_t width, int64_t channels, int64_t patch, const torch::TensorOptions& options) {
      const int64_t pixels = channels * patch * patch;
      const Init init = Init::uniform(1.0 / std::sqrt(static_cast<double>(pixels)));
      weight = add_parameter("weight", {width, pixels}, options, init);
      bias = add_parameter("bias", {channels}, options, init);
    }
    torch::Tensor weight, bias;
  };

  torch::Tensor noisy_of(const Batch& batch) const {
    return add_noise(options_, batch.image_bCHW(), batch.context,
                     batch.context.training ? kTrainingNoise : kEvaluationNoise);
  }

  torch::Tensor restore(const torch::Tensor& noisy_bCHW, const Batch& batch, ModelOutput& output) {
    ModelInput input = input_of(batch);
    input.image_bCHW = noisy_bCHW;
    output = backbone_->forward(input, batch.context);
    const torch::Tensor token_bSD = output.token_bSD;
    const torch::Tensor patches = token_bSD.matmul(head_->weight.to(token_bSD.scalar_type()));
    const torch::Tensor image = image_of(patches, noisy_bCHW.sizes(), patch_) +
                                head_->bias.to(token_bSD.scalar_type()).view({1, -1, 1, 1});
    return options_.residual ? noisy_bCHW - image : image;
  }

  Options options_;
  ImageShape shape_;
  int64_t patch_ = 0;
  std::shared_ptr<Backbone> backbone_;
  std::shared_ptr<Head> head_;
};

const Registration<Task, Denoise> registered_denoise{"denoise", "restoring noisy images"};

}  // namespace

const DenoiseOptions& denoise_options(const Choice<Task>& task) { return task.options<Denoise>(); }

}  // namespace shoal
