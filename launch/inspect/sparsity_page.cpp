#include "launch/inspect/sparsity_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "launch/pages/page.h"
#include "launch/pages/picture.h"
#include "launch/report/curve_figure.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

constexpr std::string_view kSparsityStyle =
    R"(section { border-top: 1px solid var(--line); margin-top: 28px; }
h3 { margin: 16px 0 6px; font-size: 16px; overflow-wrap: anywhere; }
.moments { display: flex; flex-wrap: wrap; gap: 16px 28px; margin-bottom: 16px; }
.pair { display: flex; gap: 8px; align-items: flex-start; }
.pair img { image-rendering: pixelated; border: 1px solid var(--line); forced-color-adjust: none; }
.moments figcaption { font-weight: normal; font-size: 13px; font-variant-numeric: tabular-nums; }
.scale { display: inline-block; width: 120px; height: 12px; border: 1px solid var(--line);
  vertical-align: -1px; forced-color-adjust: none; }
.plot { max-width: 480px; margin-bottom: 16px; }
)";

constexpr std::string_view kSparsityText = R"(
<p>Masks have a row for each output and a column for each input. Of a large one a pixel is the mean
of a square. Beside it stands the permutation P, a point at (i, p(i)) where input or output i reads
the one at p(i); of a soft one the matrix in its place. Masks are drawn before they are permuted.
Colours go from none <span class="scale" style="background:{}"></span> to the largest value of the
picture.</p>
<p>"Changed" is the share of the mask's weights that were off in the checkpoint before; an empty row
is an output without weights; the fan-out of an input is the number of its weights: least, median
and most. Distance is that of the permutation from the identity, from 0 to 1; the penalty that of a soft
one from the nearest permutations, from 0 to 1.</p>
)";

std::string colour_scale() {
  std::string stops;
  for (int i = 0; i <= 8; ++i) {
    stops += (i > 0 ? ", " : "") + hex_colour(viridis(i / 8.0));
  }
  return fmt::format("linear-gradient(to right, {})", stops);
}

std::string image_of(const ShrunkMatrix& matrix, const std::string& name) {
  // An integer number of page pixels per pixel of the picture.
  const int64_t scale =
      std::max<int64_t>(1, kMostDrawnSide / std::max(matrix.width, matrix.height));
  Picture picture{matrix.width, matrix.height, {}};
  const double largest = std::ranges::max(matrix.mean);
  for (const double mean : matrix.mean) {
    picture.pixels.push_back(viridis(largest > 0 ? mean / largest : 0.0));
  }
  return fmt::format("<img width=\"{}\" height=\"{}\" alt=\"{}\" src=\"{}\">", matrix.width * scale,
                     matrix.height * scale, name, png_address(picture));
}

std::string number_or_dash(const std::optional<double>& number) {
  return number ? fmt::format("{:.3f}", *number) : "-";
}

std::string percent(double share) { return fmt::format("{:.2f} %", 100 * share); }

/// Table of moments: `columns`, then those of number_cells.
std::string moments_table(const std::string& caption, std::vector<std::string> columns,
                          const std::string& rows) {
  for (const char* column : {"weights", "density", "changed", "empty rows", "fan-out",
                             "permutation", "distance", "penalty"}) {
    columns.emplace_back(column);
  }
  return page_table(caption, columns, rows);
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

std::string table_of(const SparseLayerHistory& layer, const std::string& kind) {
  const bool is_stack = layer.matrices.size() > 1;
  std::string rows;
  for (size_t i = 0; i < num_drawn(layer); ++i) {
    for (const SparseMoment& moment : layer.matrices[i].moments) {
      const std::string step = fmt::format("step {}", moment.step);
      rows += page_row(is_stack ? short_name(layer, i) + ", " + step : step,
                       number_cells(moment, kind));
    }
  }
  return moments_table("Numbers of " + layer.layer, {"checkpoint"}, rows);
}

std::string figures_of(const SparseMatrixHistory& matrix, const std::string& kind) {
  std::string html = "<div class=\"moments\">\n";
  for (const SparseMoment& moment : matrix.moments) {
    if (!moment.mask_picture) continue;
    std::string images =
        image_of(*moment.mask_picture, fmt::format("mask at step {}", moment.step));
    if (moment.permutation_picture) {
      images +=
          image_of(*moment.permutation_picture, fmt::format("permutation at step {}", moment.step));
    }
    const std::string order = moment.permutation ? ", permutation " + order_text(moment, kind) : "";
    html += fmt::format(
        "<figure><div class=\"pair\">{}</div><figcaption>step {}{}</figcaption></figure>\n", images,
        moment.step, xml_text(order));
  }
  return html + "</div>\n";
}

std::string curves_of(const SparseLayerHistory& layer, const std::string& id) {
  const PermutationCurves& curves = layer.curves;
  if (curves.distance.num_finite() < 2) return "";
  const std::string state = curves.hard_from
                                ? fmt::format("hard from step {} on", *curves.hard_from)
                                : "soft at the last logged step";
  return curve_figure_html(
      {.title = fmt::format("Permutation of {}, {}", layer.layer, state),
       .lines = {{"distance", &curves.distance, 0}, {"penalty", &curves.penalty, 1}}},
      id);
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

std::string summary_of(const SparsityHistory& history) {
  std::string rows;
  for (const SparseLayerHistory& layer : history.layers) {
    const SparseMatrixHistory& first = layer.matrices.front();
    std::vector<std::string> cells = number_cells(first.moments.back(), history.permutation);
    cells.insert(cells.begin(), shape_text(layer));
    rows += page_row(xml_text(first.name), cells);
  }
  return moments_table(
      fmt::format("Sparse layers at step {}, of a stack its first expert", history.steps.back()),
      {"layer", "outputs x inputs"}, rows);
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

std::string sparsity_page(const std::string& title, const SparsityHistory& history) {
  std::string html = page_head(title, curve_style() + std::string(kSparsityStyle));
  html += fmt::format(kSparsityText, colour_scale()) + summary_of(history);
  for (size_t l = 0; l < history.layers.size(); ++l) {
    const SparseLayerHistory& layer = history.layers[l];
    html += fmt::format("<section>\n<h2>{}</h2>\n<p>{} weights, pattern {}, {} asked for{}</p>\n",
                        xml_text(layer.layer), shape_text(layer), xml_text(history.pattern),
                        percent(layer.density), notes_of(layer));
    for (size_t i = 0; i < num_drawn(layer); ++i) {
      if (layer.matrices.size() > 1) {
        html += fmt::format("<h3>{}</h3>\n", short_name(layer, i));
      }
      html += figures_of(layer.matrices[i], history.permutation);
    }
    html += curves_of(layer, fmt::format("curves{}", l)) + table_of(layer, history.permutation) +
            "</section>\n";
  }
  return html + kPageEnd;
}

}  // namespace shoal
