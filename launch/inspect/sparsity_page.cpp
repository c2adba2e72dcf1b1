#include "launch/inspect/sparsity_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "launch/pages/picture.h"
#include "launch/report/figures.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPictureText =
    "Masks have a row for each output and a column for each input. Of a large one a pixel is the "
    "mean of a square. Beside it stands the permutation P, a point at (i, p(i)) where input or "
    "output i reads the one at p(i); of a soft one the matrix in its place. Masks are drawn before "
    "they are permuted. Colours go from none (dark) to the largest value of the picture (bright).";
constexpr const char* kNumberText =
    "\"Changed\" is the share of the mask's weights that were off in the checkpoint before; an "
    "empty row is an output without weights; the fan-out of an input is the number of its weights: "
    "least, median and most. Distance is that of the permutation from the identity, from 0 to 1; "
    "the penalty that of a soft one from the nearest permutations, from 0 to 1.";

Json image_of(const ShrunkMatrix& matrix, const std::string& name) {
  // An integer number of page pixels per pixel of the picture.
  const int64_t scale =
      std::max<int64_t>(1, kMostDrawnSide / std::max(matrix.width, matrix.height));
  const Picture picture =
      viridis_picture(matrix.width, matrix.height, matrix.mean, std::ranges::max(matrix.mean));
  return {{"src", png_address(picture)}, {"alt", name}, {"width", matrix.width * scale}};
}

std::string number_or_dash(const std::optional<double>& number) {
  return number ? fmt::format("{:.3f}", *number) : "-";
}

std::string percent(double share) { return fmt::format("{:.2f} %", 100 * share); }

/// A table of moments: `columns`, then those of number_cells.
CaptionedTable moments_table(const std::string& caption, std::vector<std::string> columns) {
  columns.insert(columns.end(), {"weights", "density", "changed", "empty rows", "fan-out",
                                 "permutation", "distance", "penalty"});
  return {caption, {columns}};
}

void add_row(CaptionedTable& table, std::vector<std::string> cells, const SparseMoment& moment,
             const std::string& kind) {
  const std::vector<std::string> numbers = number_cells(moment, kind);
  cells.insert(cells.end(), numbers.begin(), numbers.end());
  table.rows.push_back(std::move(cells));
}

/// Short name of a matrix, "expert 3" in a stack.
std::string short_name(const SparseLayerHistory& layer, size_t matrix) {
  const std::string& name = layer.matrices[matrix].name;
  const size_t star = layer.layer.find('*');
  TORCH_CHECK(star != std::string::npos, layer.layer, " is not a stack");
  return "expert " + name.substr(star, name.find('.', star) - star);
}

size_t num_drawn(const SparseLayerHistory& layer) {
  return std::min(layer.matrices.size(), kMostDrawnMatrices);
}

CaptionedTable table_of(const SparseLayerHistory& layer, const std::string& kind) {
  const bool is_stack = layer.matrices.size() > 1;
  CaptionedTable table = moments_table("Numbers of " + layer.layer, {"checkpoint"});
  for (size_t i = 0; i < num_drawn(layer); ++i) {
    for (const SparseMoment& moment : layer.matrices[i].moments) {
      const std::string step = fmt::format("step {}", moment.step);
      add_row(table, {is_stack ? short_name(layer, i) + ", " + step : step}, moment, kind);
    }
  }
  return table;
}

Json pictures_of(const SparseMatrixHistory& matrix, const std::string& kind) {
  Json pictures = Json::array();
  for (const SparseMoment& moment : matrix.moments) {
    if (!moment.mask_picture) continue;
    const std::string at = fmt::format("step {}", moment.step);
    Json images = Json::array({image_of(*moment.mask_picture, "mask at " + at)});
    if (moment.permutation_picture) {
      images.push_back(image_of(*moment.permutation_picture, "permutation at " + at));
    }
    const std::string order = moment.permutation ? ", permutation " + order_text(moment, kind) : "";
    pictures.push_back({{"images", images}, {"caption", at + order}});
  }
  return pictures;
}

void add_permutation(Page& page, const SparseLayerHistory& layer) {
  const Curve *distance = layer.curves.find("distance"), *soft = layer.curves.find("soft");
  const Curve* penalty = layer.curves.find("penalty");
  if (distance == nullptr || distance->num_finite() < 2 || !soft || !penalty) return;
  const Curve::Point& hard = soft->lowest();  // the first of its lowest values
  const std::string state = hard.value == 0 ? fmt::format("hard from step {} on", hard.step)
                                            : "soft at the last logged step";
  CurveFigure figure;
  figure.info.label = fmt::format("Permutation of {}, {}", layer.layer, state);
  figure.lines = {{"distance", distance}, {"penalty", penalty}};
  add_curves(page, figure, Curve::kMostBuckets);
}

std::string notes_of(const SparseLayerHistory& layer) {
  const size_t count = layer.matrices.size(), drawn = num_drawn(layer);
  std::string notes;
  if (count > 1) notes += "; " + counted(static_cast<int64_t>(count), "expert");
  if (drawn < count) {
    notes += fmt::format(", the first {} shown (`--json` has the numbers of all)", drawn);
  }
  const size_t moments = layer.matrices.front().moments.size();
  if (moments > kMostDrawnCheckpoints) {
    notes += fmt::format("; {} of {} checkpoints drawn", kMostDrawnCheckpoints, moments);
  }
  return notes;
}

CaptionedTable summary_of(const SparsityHistory& history) {
  CaptionedTable table = moments_table(
      fmt::format("Sparse layers at step {}, of a stack its first expert", history.steps.back()),
      {"layer", "outputs x inputs"});
  for (const SparseLayerHistory& layer : history.layers) {
    const SparseMatrixHistory& first = layer.matrices.front();
    add_row(table, {first.name, shape_text(layer)}, first.moments.back(), history.permutation);
  }
  return table;
}

}  // namespace

std::string shape_text(const SparseLayerHistory& layer) {
  return fmt::format("{} x {}", layer.rows, layer.columns);
}

std::string order_text(const SparseMoment& moment, const std::string& kind) {
  if (!moment.permutation) return "none";
  if (!moment.permutation->is_soft) return "hard";
  return moment.permutation->distance ? "soft" : "soft, " + kind;
}

std::vector<std::string> number_cells(const SparseMoment& moment, const std::string& kind) {
  const MaskNumbers& mask = moment.mask;
  std::vector<std::string> cells{
      std::to_string(mask.weights),
      percent(mask.density) + (mask.is_chosen ? "" : ", not chosen yet"),
      mask.changed ? percent(*mask.changed) : "-",
      std::to_string(mask.empty_rows),
      fmt::format("{} / {:g} / {}", mask.least_fan_out, mask.median_fan_out, mask.most_fan_out),
      order_text(moment, kind)};
  const PermutationNumbers numbers = moment.permutation.value_or(PermutationNumbers{});
  cells.push_back(number_or_dash(numbers.distance));
  cells.push_back(number_or_dash(numbers.penalty));
  return cells;
}

Page sparsity_page(const std::string& title, const SparsityHistory& history) {
  Page page(title);
  page.add_run({{"name", ""}, {"marks", Json::array()}, {"last_step", history.steps.back()}});
  page.begin_section("layers", "Sparse layers");
  page.add({{"paragraph", kPictureText}});
  page.add({{"paragraph", kNumberText}});
  page.add_table(summary_of(history));
  for (const SparseLayerHistory& layer : history.layers) {
    page.begin_section(layer.layer, layer.layer);
    page.add(
        {{"paragraph", fmt::format("{} weights, pattern {}, {} asked for{}", shape_text(layer),
                                   history.pattern, percent(layer.density), notes_of(layer))}});
    for (size_t i = 0; i < num_drawn(layer); ++i) {
      if (layer.matrices.size() > 1) page.add({{"heading", short_name(layer, i)}});
      page.add({{"pictures", pictures_of(layer.matrices[i], history.permutation)}});
    }
    add_permutation(page, layer);
    page.add_table(table_of(layer, history.permutation));
  }
  return page;
}

}  // namespace shoal
