#include "launch/pages/sample_sheet.h"

#include <ATen/ops/avg_pool2d.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "launch/pages/picture.h"
#include "models/task.h"
#include "runtime/base/error.h"
#include "runtime/files/data_file.h"

// B samples  C channels  H height  W width
namespace shoal {
namespace {

constexpr int64_t kMostPixels = int64_t{1} << 18;

int64_t pixels_of_row(const torch::Tensor& image_BCHW, int64_t columns, int64_t shrunk_by) {
  return columns * (image_BCHW.size(2) / shrunk_by) * (image_BCHW.size(3) / shrunk_by);
}

std::vector<double> first_numbers(const PictureColumn& column, int64_t count) {
  if (!column.number_b.defined()) return {};
  const torch::Tensor numbers = column.number_b.to(torch::kCPU, torch::kFloat64).contiguous();
  const double* number = numbers.const_data_ptr<double>();
  return {number, number + count};
}

std::string description_of(const SampleSheet& sheet) {
  nlohmann::json columns = nlohmann::json::array();
  for (const SampleSheet::Column& column : sheet.columns) {
    columns.push_back({{"name", column.name}});
    if (column.numbers.empty()) continue;
    columns.back()["number"] = column.number;
    columns.back()["numbers"] = column.numbers;
  }
  return nlohmann::json{{"step", sheet.step},
                        {"samples", sheet.samples},
                        {"shrunk_by", sheet.shrunk_by},
                        {"columns", columns}}
      .dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string sheet_png(const std::vector<PictureColumn>& columns, int64_t step) {
  const torch::Tensor& first = columns.front().image_bCHW;
  const auto num_columns = std::ssize(columns);
  SampleSheet sheet;
  sheet.step = step;
  while (pixels_of_row(first, num_columns, sheet.shrunk_by) > kMostPixels) ++sheet.shrunk_by;
  const int64_t row = std::max<int64_t>(1, pixels_of_row(first, num_columns, sheet.shrunk_by));
  sheet.samples = std::min(first.size(0), kMostPixels / row);
  std::vector<Picture> pictures;
  for (int64_t i = 0; i < sheet.samples; ++i) {
    for (const PictureColumn& column : columns) {
      pictures.push_back(picture_of(at::avg_pool2d(column.image_bCHW[i], sheet.shrunk_by)));
    }
  }
  for (const PictureColumn& column : columns) {
    sheet.columns.push_back({column.name, column.number, first_numbers(column, sheet.samples)});
  }
  return png_bytes(tile(pictures, num_columns, SampleSheet::kGap), description_of(sheet));
}

std::optional<SampleSheet> read_sheet(std::string_view png) {
  const std::optional<PngHead> head = read_png_head(png);
  if (!head) return std::nullopt;
  const nlohmann::json json =
      nlohmann::json::parse(head->description, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  try {
    SampleSheet sheet{json.at("step"), json.at("samples"), json.at("shrunk_by"), {}};
    for (const nlohmann::json& column : json.at("columns")) {
      sheet.columns.push_back({column.at("name"), column.value("number", ""), {}});
      for (const nlohmann::json& number : column.value("numbers", nlohmann::json::array())) {
        // JSON has null for numbers that are not finite.
        sheet.columns.back().numbers.push_back(number.is_number() ? number.get<double>()
                                                                  : std::nan(""));
      }
    }
    const bool fits = std::ranges::all_of(sheet.columns, [&](const SampleSheet::Column& column) {
      return column.numbers.empty() || std::ssize(column.numbers) == sheet.samples;
    });
    if (sheet.samples < 1 || sheet.shrunk_by < 1 || sheet.columns.empty() || !fits) {
      return std::nullopt;
    }
    return sheet;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

SheetFile::SheetFile(std::string path, int64_t last_step, SharedFileSystem files)
    : files_(std::move(files)), path_(std::move(path)) {
  const std::optional<SampleSheet> sheet = read_sheet(text_of_file(path_));
  if (sheet && sheet->step > last_step) remove_path(*files_, path_);
}

void SheetFile::write(const std::string& png) {
  waiting_ = png;
  replace_file(*files_, path_, png);
  waiting_.reset();
}

void SheetFile::finish() {
  if (!waiting_) return;
  const std::string png = *std::exchange(waiting_, std::nullopt);
  try {
    replace_file(*files_, path_, png);
  } catch (const StorageError& error) {
    throw StorageError(
        fmt::format("{}: the pictures of the last evaluation are lost", error.what()),
        error.hint());
  }
}

}  // namespace shoal
