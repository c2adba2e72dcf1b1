#include "models/tasks/image_mix.h"

#include <algorithm>
#include <cmath>

#include "runtime/random/philox.h"
#include "runtime/random/random_stream.h"

// b samples on this rank  C channels  H height  W width
namespace shoal {
namespace {

/// The random numbers of one step, drawn in sequence.
class Draws {
 public:
  Draws(uint64_t seed, int64_t step)
      : Draws(Stream{seed, Purpose::kAugment, hash_name("task.mix"), static_cast<uint64_t>(step)}) {
  }

  double uniform() { return draws_.uniform(0, next_++); }
  int64_t integer(int64_t count) { return draws_.integer(0, next_++, count); }

  double normal() {
    double pair[2];
    philox::values_of<philox::Distribution::kNormal>(philox::words_at(key_, 0, next_++), pair);
    return pair[0];
  }

  /// Gamma variate (Marsaglia and Tsang 2000), for shape < 1 from shape + 1. Uses the system's log
  /// and pow, so machines whose libm differ in the last bit may draw shares that do.
  double gamma(double shape) {
    if (shape < 1.0) {
      const double larger = gamma(shape + 1.0);
      return larger * std::pow(uniform(), 1.0 / shape);
    }
    const double d = shape - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
    while (true) {
      const double x = normal(), root = 1.0 + c * x;
      if (root <= 0.0) continue;
      const double v = root * root * root;
      if (std::log(uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
    }
  }

  /// Beta(a, a) variate; 1/2 if both gamma variates underflow.
  double symmetric_beta(double a) {
    const double first = gamma(a), second = gamma(a);
    return first + second > 0.0 ? first / (first + second) : 0.5;
  }

 private:
  explicit Draws(const Stream& stream) : draws_(stream), key_(stream.key()) {}

  ScalarDraws draws_;
  philox::StreamKey key_;
  uint32_t next_ = 0;
};

/// Draws a rectangle of this share of the image's area at a random centre, clipped at the borders.
ImageMix cut(double share, int64_t height, int64_t width, Draws& draws) {
  const double side = std::sqrt(share);
  const auto range = [&](int64_t length) {
    const auto half = static_cast<int64_t>(static_cast<double>(length) * side) / 2;
    const int64_t middle = draws.integer(length);
    return std::pair{std::max<int64_t>(0, middle - half), std::min(length, middle + half)};
  };
  const auto [top, bottom] = range(height);
  const auto [left, right] = range(width);
  const auto area = static_cast<double>((bottom - top) * (right - left));
  return {1.0 - area / static_cast<double>(height * width),
          ImageMix::Rectangle{top, bottom, left, right}};
}

}  // namespace

std::optional<ImageMix> draw_image_mix(const ImageMixOptions& options, uint64_t seed, int64_t step,
                                       int64_t height, int64_t width) {
  if (options.mixup == 0.0 && options.cutmix == 0.0) return std::nullopt;
  Draws draws(seed, step);
  if (draws.uniform() >= options.probability) return std::nullopt;
  const bool has_both = options.mixup > 0.0 && options.cutmix > 0.0;
  const double choice = draws.uniform();
  const bool cuts = has_both ? choice < options.cutmix_share : options.cutmix > 0.0;
  const double own_share = draws.symmetric_beta(cuts ? options.cutmix : options.mixup);
  if (cuts) return cut(1.0 - own_share, height, width, draws);
  return ImageMix{own_share};
}

torch::Tensor partners(const torch::Tensor& value_b, int64_t samples_per_group) {
  TORCH_CHECK(value_b.size(0) % samples_per_group == 0, value_b.size(0),
              " samples are not whole routing groups of ", samples_per_group);
  return value_b.unflatten(0, {-1, samples_per_group}).flip(1).flatten(0, 1);
}

torch::Tensor mixed(const torch::Tensor& image_bCHW, const ImageMix& mix,
                    int64_t samples_per_group) {
  const torch::Tensor other_bCHW = partners(image_bCHW, samples_per_group);
  if (!mix.rectangle) return image_bCHW * mix.own_share + other_bCHW * (1.0 - mix.own_share);
  const auto [top, bottom, left, right] = *mix.rectangle;
  const auto inside = [&](const torch::Tensor& image) {
    return image.slice(2, top, bottom).slice(3, left, right);
  };
  torch::Tensor result = image_bCHW.clone();
  inside(result).copy_(inside(other_bCHW));
  return result;
}

}  // namespace shoal
