#include "launch/pages/image_regions.h"

#include <ATen/ops/gradient.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>

// C channels  H height  W width  N patches of an image  P pixels of a patch
namespace shoal {

std::vector<RegionFeatures> region_features(const Picture& image, int64_t rows, int64_t columns) {
  const int64_t side =
      rows < 1 || columns < 1 ? 0 : std::min(image.height / rows, image.width / columns);
  if (side < 1) throw std::logic_error("patches smaller than a pixel");
  const torch::Tensor rgb_HWC =
      torch::tensor(at::ArrayRef(image.pixels.front().data(), 3 * image.pixels.size()))
          .view({image.height, image.width, 3});
  const torch::Tensor grey_HW = rgb_HWC.sum(2).to(torch::kFloat64) / (3 * 255.0);
  const auto slope_along = [&](int64_t dim) {
    return grey_HW.size(dim) > 1 ? at::gradient(grey_HW, std::nullopt, dim)[0]
                                 : at::zeros_like(grey_HW);
  };
  const auto patches_of = [&](const torch::Tensor& value_HW) {  // [N, pixels of a patch]
    return value_HW.slice(0, 0, rows * side)
        .slice(1, 0, columns * side)
        .reshape({rows, side, columns, side})
        .transpose(1, 2)
        .reshape({rows * columns, side * side});
  };
  const auto mean_of = [](const torch::Tensor& value_NP) {  // added up in order, unlike at::mean
    return value_NP.cumsum(1).slice(1, -1) / value_NP.size(1);
  };
  const torch::Tensor patch_NP = patches_of(grey_HW), mean_N1 = mean_of(patch_NP);
  const torch::Tensor contrast_N1 = mean_of((patch_NP - mean_N1).square()).sqrt();
  torch::Tensor edge_HW = slope_along(0).contiguous();
  double* edge = edge_HW.mutable_data_ptr<double>();
  std::transform(edge, edge + edge_HW.numel(), slope_along(1).contiguous().const_data_ptr<double>(),
                 edge, [](double down, double right) { return std::hypot(down, right); });
  const torch::Tensor edges_N1 = mean_of(patches_of(edge_HW));
  std::vector<RegionFeatures> features;
  for (int64_t n = 0; n < rows * columns; ++n) {
    const double middle = (static_cast<double>(n / columns) + 0.5) * static_cast<double>(side);
    features.push_back({mean_N1[n].item<double>(), contrast_N1[n].item<double>(),
                        edges_N1[n].item<double>(), middle / static_cast<double>(image.height)});
  }
  return features;
}

double RegionTable::share(const Unit& unit) const {
  return patches == 0 ? 0.0 : static_cast<double>(unit.patches) / static_cast<double>(patches);
}

RegionCounter::RegionCounter(int64_t num_units) : unit_(static_cast<size_t>(num_units + 1)) {}

void RegionCounter::Moments::add(const RegionFeatures& features) {
  ++count;
  for (size_t i = 0; i < features.size(); ++i) {
    const double from_old = features[i] - mean[i];
    mean[i] += from_old / static_cast<double>(count);
    square[i] += from_old * (features[i] - mean[i]);
  }
}

void RegionCounter::add(const std::vector<int64_t>& unit_N,
                        const std::vector<RegionFeatures>& features_N) {
  if (unit_N.size() != features_N.size()) throw std::logic_error("a patch without features");
  for (size_t n = 0; n < unit_N.size(); ++n) {
    all_.add(features_N[n]);
    const bool has_unit = unit_N[n] >= 0;
    (has_unit ? unit_.at(static_cast<size_t>(unit_N[n])) : unit_.back()).add(features_N[n]);
  }
}

RegionTable RegionCounter::table() const {
  RegionTable table{all_.count, all_.mean, {}, {}};
  for (size_t i = 0; i < table.deviation.size(); ++i) {
    if (all_.count > 0) {
      table.deviation[i] = std::sqrt(all_.square[i] / static_cast<double>(all_.count));
    }
  }
  for (int64_t u = 0; u < std::ssize(unit_); ++u) {
    const Moments& unit = unit_[static_cast<size_t>(u)];
    const bool is_none = u + 1 == std::ssize(unit_);
    if (is_none && unit.count == 0) continue;
    RegionTable::Unit& own =
        table.units.emplace_back(RegionTable::Unit{is_none ? -1 : u, unit.count, unit.mean, {}});
    for (size_t i = 0; i < own.difference.size(); ++i) {
      if (unit.count == 0 || table.deviation[i] == 0) continue;
      own.difference[i] = (unit.mean[i] - table.mean[i]) / table.deviation[i];
    }
  }
  return table;
}

}  // namespace shoal
