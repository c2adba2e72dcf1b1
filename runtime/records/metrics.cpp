#include "runtime/records/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

/// Throws if the path is there and no regular file: opening a pipe would wait for ever.
void require_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    throw StorageError(fmt::format("'{}' is {}, not a file that lines can be added to", path,
                                   fs::is_directory(status) ? "a folder" : "something special"),
                       "move it away, or choose another run folder");
  }
}

/// What becomes of a line; nothing for one that is broken or of a later step.
using KeepLine = std::function<std::optional<std::string>(const std::string&)>;

/// Rewrites the file, if it exists, to `first` and what `keep` makes of its lines. Returns `path`.
const std::string& keep_lines(const std::string& path, FileSystem& files, const std::string& first,
                              const KeepLine& keep) {
  require_file(path);
  std::ifstream old(path);
  if (!old) return path;
  std::string kept = first;
  for (std::string line; std::getline(old, line);) {
    if (old.eof()) break;  // a line without its end was cut off by a crash
    if (const std::optional<std::string> changed = keep(line)) kept += *changed + "\n";
  }
  if (old.bad()) throw StorageError(fmt::format("'{}' cannot be read to its end", path));
  old.close();
  replace_file(files, path, kept);
  return path;
}

KeepLine objects_up_to(int64_t last_step) {
  return [last_step](const std::string& line) -> std::optional<std::string> {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return std::nullopt;
    const auto step = json.find("step");
    if (step == json.end() || !step->is_number_integer()) return std::nullopt;
    return step->get<int64_t>() <= last_step ? std::optional(line) : std::nullopt;
  };
}

using Columns = std::vector<std::string>;

constexpr const char* kStep = "step";

Columns split_cells(std::string line) {
  if (line.ends_with('\r')) line.pop_back();  // as other programs end lines
  return split(line, ',');
}

std::string row_of(const Columns& cells) { return fmt::format("{}", fmt::join(cells, ",")); }

bool has(const Columns& columns, const std::string& column) {
  return std::ranges::find(columns, column) != columns.end();
}

/// Columns in the file's header; `columns` if it has no complete first line.
Columns columns_in(const std::string& path, const Columns& columns) {
  require_file(path);
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || file.eof()) return columns;
  Columns header = split_cells(line);
  if (!has(header, kStep)) {
    throw StorageError(fmt::format("'{}' has no column {}", path, kStep), "move it away");
  }
  return header;
}

/// `columns`, and then those of the file that are not among them.
Columns all_columns(const std::string& path, Columns columns) {
  for (const std::string& column : columns_in(path, columns)) {
    if (!has(columns, column)) columns.push_back(column);
  }
  return columns;
}

/// Rewrites the rows up to `last_step` to `columns`. Returns `path`.
const std::string& keep_rows(const std::string& path, const Columns& columns, int64_t last_step,
                             FileSystem& files) {
  const Columns before = columns_in(path, columns);
  const auto keep = [&](const std::string& line) -> std::optional<std::string> {
    std::map<std::string, std::string> cell_of;
    const Columns cells = split_cells(line);
    for (size_t i = 0; i < std::min(cells.size(), before.size()); ++i)
      cell_of[before[i]] = cells[i];
    const std::optional<int64_t> step = parse_digits(cell_of[kStep]);
    if (!step || *step > last_step) return std::nullopt;
    Columns row;
    for (const std::string& column : columns) row.push_back(cell_of[column]);
    return row_of(row);
  };
  return keep_lines(path, files, row_of(columns) + "\n", keep);
}

std::string cell_text(const MetricsRecord::Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const auto* real = std::get_if<double>(&value)) return fmt::format("{}", *real);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return "";
}

}  // namespace

MetricsRecord& MetricsRecord::add(const std::string& key, Value value) {
  if (double* number = std::get_if<double>(&value)) *number = without_sign_if_nan(*number);
  entries_.emplace_back(key, std::move(value));
  return *this;
}

MetricsRecord& MetricsRecord::add_exact(const std::string& key, double value) {
  return add(key, value).add(key + "_hex", hex_float(without_sign_if_nan(value)));
}

std::string MetricsRecord::to_json() const {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [key, value] : entries_) {
    std::visit([&, &key = key](const auto& held) { json[key] = held; }, value);
  }
  return json.dump();
}

double without_sign_if_nan(double value) { return std::isnan(value) ? std::fabs(value) : value; }

std::string hex_float(double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%a", value);
  return text.data();
}

LineFile::LineFile(std::string path, SharedFileSystem files)
    : GrowingFile(std::move(path), "line", std::move(files)) {}

void LineFile::append(const std::string& line) { GrowingFile::append(line + "\n"); }

JsonLines::JsonLines(const std::string& path, int64_t last_step, SharedFileSystem files)
    : LineFile(keep_lines(path, *files, "", objects_up_to(last_step)), files) {}

void JsonLines::write(const MetricsRecord& record) { append(record.to_json()); }

CsvTable::CsvTable(const std::string& path, std::vector<std::string> columns, int64_t last_step,
                   SharedFileSystem files)
    : LineFile(keep_rows(path, all_columns(path, columns), last_step, *files), files),
      columns_(all_columns(path, std::move(columns))) {
  std::error_code ignored;
  if (std::filesystem::file_size(path, ignored) == 0) append(row_of(columns_));
}

void CsvTable::write(const MetricsRecord& record) {
  std::vector<std::string> cells;
  for (const std::string& column : columns_) {
    std::string cell;
    for (const auto& [key, value] : record.entries()) {
      if (key == column) cell = cell_text(value);
    }
    cells.push_back(cell);
  }
  append(row_of(cells));
}

}  // namespace shoal
