#include "models/tasks/denoise_options.h"

#include "runtime/device/real_types.h"
#include "runtime/random/random.h"

// b samples on this rank  C channels  H height  W width
namespace shoal {

torch::Tensor add_noise(const DenoiseOptions& options, const torch::Tensor& clean_bCHW,
                        const StepContext& step, std::string_view stream) {
  const Stream of_noise{step.seed, Purpose::kImageNoise, hash_name(stream), 0};
  const torch::Dtype dtype = wide_dtype(clean_bCHW.scalar_type());
  const int64_t values = clean_bCHW.size(1) * clean_bCHW.size(2) * clean_bCHW.size(3);
  torch::Tensor noise =
      normal_rows(of_noise, step.sample_b, values, dtype).view(clean_bCHW.sizes());
  if (options.most_sigma) {
    Stream of_sigma = of_noise;
    of_sigma.step = 1;
    const torch::Tensor draw_b = uniform_rows(of_sigma, step.sample_b, 1, dtype);
    const torch::Tensor sigma_b = draw_b * (*options.most_sigma - options.sigma) + options.sigma;
    noise = noise * sigma_b.view({-1, 1, 1, 1});
  } else {
    noise = noise * options.sigma;
  }
  const torch::Tensor noisy = clean_bCHW + noise.to(clean_bCHW.scalar_type());
  return options.clamp_noisy ? noisy.clamp(0.0, 1.0) : noisy;
}

}  // namespace shoal
