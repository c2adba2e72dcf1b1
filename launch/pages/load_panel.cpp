#include "launch/pages/load_panel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace shoal {
namespace {

constexpr size_t kMostColumns = 200, kMostRows = 128;
constexpr double kShareWithin = 0.99;  ///< of the shares, within the scale
constexpr std::array kLimits{1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0};

/// Cuts `count` items into at most `most` runs of about equal length; returns offsets, [runs + 1].
std::vector<size_t> cut(size_t count, size_t most) {
  const size_t num_runs = std::min(count, most);
  std::vector<size_t> offsets{0};
  for (size_t run = 1; run <= num_runs; ++run) offsets.push_back(run * count / num_runs);
  return offsets;
}

std::vector<double> shares_over_even(const std::vector<double>& load) {
  double total = 0.0;
  for (const double value : load) total += value;
  std::vector<double> shares(load.size(), 0.0);
  for (size_t u = 0; total > 0 && u < load.size(); ++u) {
    shares[u] = load[u] * static_cast<double>(load.size()) / total;
  }
  return shares;
}

/// Cuts units into rows, with experts and memory units in separate rows.
void cut_rows(LoadPanel& panel, size_t num_units, size_t num_memory) {
  const size_t num_experts = num_units - num_memory;
  const size_t expert_rows = num_units == 0
                                 ? 0
                                 : std::clamp<size_t>(kMostRows * num_experts / num_units,
                                                      num_experts > 0 ? 1 : 0, kMostRows);
  panel.row_offsets = cut(num_experts, std::max<size_t>(expert_rows, 1));
  panel.num_expert_rows = panel.num_rows();
  const std::vector<size_t> memory = cut(num_memory, std::max<size_t>(1, kMostRows - expert_rows));
  for (size_t i = 1; i < memory.size(); ++i) panel.row_offsets.push_back(num_experts + memory[i]);
}

}  // namespace

LoadPanel make_load_panel(const LoadHistory& layer) {
  size_t num_units = 0;
  for (const auto& load : layer.load) num_units = std::max(num_units, load.size());
  LoadPanel panel{layer.layer, cut(layer.steps.size(), kMostColumns), {}, {}, {}, 0};
  cut_rows(panel, num_units, std::min(static_cast<size_t>(layer.memory_units), num_units));
  const size_t rows = panel.num_rows(), columns = panel.num_columns();
  panel.share.assign(rows, std::vector<double>(columns, 0.0));
  std::vector<std::vector<double>> count = panel.share;
  for (size_t column = 0; column < columns; ++column) {
    panel.column_steps.push_back(layer.steps[panel.column_offsets[column + 1] - 1]);
    for (size_t s = panel.column_offsets[column]; s < panel.column_offsets[column + 1]; ++s) {
      const std::vector<double> shares = shares_over_even(layer.load[s]);
      size_t row = 0;
      for (size_t unit = 0; unit < shares.size(); ++unit) {
        while (unit >= panel.row_offsets[row + 1]) ++row;
        panel.share[row][column] += shares[unit];
        ++count[row][column];
      }
    }
  }
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < columns; ++column) {
      panel.share[row][column] /= count[row][column];  // 0 / 0 where there is none
    }
  }
  return panel;
}

LoadScale::LoadScale(const std::vector<LoadPanel>& panels) : limit_(kLimits.back()) {
  std::vector<double> distance;  // from the even share, in octaves
  for (const LoadPanel& panel : panels) {
    for (const auto& row : panel.share) {
      for (const double share : row) {
        if (share > 0) distance.push_back(std::abs(std::log2(share)));
      }
    }
  }
  if (distance.empty()) {
    limit_ = kLimits.front();
    return;
  }
  const auto place =
      static_cast<size_t>(std::ceil(kShareWithin * static_cast<double>(distance.size() - 1)));
  const auto within = distance.begin() + static_cast<std::ptrdiff_t>(place);
  std::nth_element(distance.begin(), within, distance.end());
  const auto enough = std::find_if(kLimits.begin(), kLimits.end(), [&](double limit) {
    return std::log2(limit) >= *within - 1e-9;
  });
  if (enough != kLimits.end()) limit_ = *enough;
}

int64_t LoadScale::level(double share) const {
  if (!(share > 0)) return kNothing;
  const double place = std::clamp(std::log2(share) / std::log2(limit_), -1.0, 1.0);
  return std::lround((place + 1) / 2 * (kLevels - 1));
}

Rgb LoadScale::colour(int64_t level) {
  if (level == kNothing) return {0, 0, 0};
  return blue_to_red(2 * static_cast<double>(level) / (kLevels - 1) - 1);
}

std::vector<ScaleTick> LoadScale::ticks() const {
  std::vector<ScaleTick> ticks;
  for (const double place : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    const double share = std::pow(limit_, 2 * place - 1);
    const char* end = place == 0.0 ? "\u2264 " : place == 1.0 ? "\u2265 " : "";
    ticks.push_back({place, place == 0.5 ? "1 (even)" : fmt::format("{}{:.2f}", end, share)});
  }
  return ticks;
}

Picture load_picture(const std::vector<std::vector<double>>& load) {
  constexpr size_t kMostUnitColumns = 256;
  const LoadScale scale(4.0);
  size_t num_units = 0;
  for (const auto& layer : load) num_units = std::max(num_units, layer.size());
  const std::vector<size_t> rows = cut(load.size(), kMostRows);
  const std::vector<size_t> columns = cut(num_units, kMostUnitColumns);
  Picture picture{std::ssize(columns) - 1, std::ssize(rows) - 1, {}};
  for (size_t row = 0; row + 1 < rows.size(); ++row) {
    std::vector<double> sum(columns.size() - 1, 0.0), count = sum;
    for (size_t layer = rows[row]; layer < rows[row + 1]; ++layer) {
      const std::vector<double> shares = shares_over_even(load[layer]);
      size_t column = 0;
      for (size_t unit = 0; unit < shares.size(); ++unit) {
        while (unit >= columns[column + 1]) ++column;
        sum[column] += shares[unit];
        ++count[column];
      }
    }
    for (size_t column = 0; column < sum.size(); ++column) {
      const bool has_unit = count[column] > 0;
      picture.pixels.push_back(has_unit
                                   ? LoadScale::colour(scale.level(sum[column] / count[column]))
                                   : Rgb{255, 255, 255});
    }
  }
  return enlarge_small(picture, 512);
}

}  // namespace shoal
