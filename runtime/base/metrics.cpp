#include "runtime/base/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

// The step of a line, or nothing for a line that is broken or has none.
using StepOfLine = std::function<std::optional<int64_t>(const std::string&)>;

/// Drops the lines of `path` that belong to later steps or to none. Returns `path`.
const std::string& keep_lines(const std::string& path, int64_t last_step, FileSystem& files,
                              const StepOfLine& step_of) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    throw StorageError(fmt::format("'{}' is {}, not a file that lines can be added to", path,
                                   fs::is_directory(status) ? "a folder" : "something special"),
                       "move it away, or choose another run folder");
  }
  std::ifstream old(path);
  if (!old) return path;
  std::string kept;
  for (std::string line; std::getline(old, line);) {
    if (old.eof()) break;  // a line without its end was cut off by a crash
    const std::optional<int64_t> step = step_of(line);
    if (step && *step <= last_step) kept += line + "\n";
  }
  if (old.bad()) throw StorageError(fmt::format("'{}' cannot be read to its end", path));
  old.close();
  replace_file(files, path, kept);
  return path;
}

std::optional<int64_t> step_of_json(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  const auto step = json.find("step");
  if (step == json.end() || !step->is_number_integer()) return std::nullopt;
  return step->get<int64_t>();
}

std::vector<std::string> split_cells(const std::string& line) {
  std::vector<std::string> cells;
  std::stringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
  return cells;
}

std::string header_of(const std::vector<std::string>& columns) {
  return fmt::format("{}", fmt::join(columns, ","));
}

StepOfLine step_of_row(const std::vector<std::string>& columns) {
  const auto step =
      static_cast<size_t>(std::find(columns.begin(), columns.end(), "step") - columns.begin());
  return [step, header = header_of(columns)](const std::string& line) -> std::optional<int64_t> {
    if (line == header) return INT64_MIN;
    const std::vector<std::string> cells = split_cells(line);
    if (step >= cells.size()) return std::nullopt;
    char* end = nullptr;
    const int64_t value = std::strtoll(cells[step].c_str(), &end, 10);
    return *end == '\0' ? std::optional<int64_t>(value) : std::nullopt;
  };
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
    : files_(std::move(files)), path_(std::move(path)) {
  file_ = files_->open(path_, FileSystem::Mode::kAppend);
  if (file_ < 0) {
    throw StorageError(
        fmt::format("open '{}': {}", path_, std::generic_category().message(-file_)));
  }
}

LineFile::LineFile(LineFile&& other) noexcept
    : files_(std::move(other.files_)),
      path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      waiting_(std::move(other.waiting_)) {}

LineFile::~LineFile() {
  if (file_ < 0) return;
  try {
    write_waiting();
  } catch (const StorageError&) {
  }
  files_->close(file_);
}

void LineFile::append(const std::string& line) {
  waiting_ += line + "\n";
  write_waiting();
}

void LineFile::finish() {
  try {
    write_waiting();
  } catch (const StorageError& error) {
    const auto lines = std::count(waiting_.begin(), waiting_.end(), '\n');
    throw StorageError(fmt::format("{}: {} lost", error.what(), counted(lines, "line")),
                       error.hint());
  }
}

void LineFile::write_waiting() {
  while (!waiting_.empty()) {
    const int64_t written = files_->write(file_, waiting_.data(), waiting_.size());
    if (written == -EINTR) continue;
    if (written <= 0) {
      const int error = written == 0 ? EIO : static_cast<int>(-written);
      throw StorageError(fmt::format("write '{}': {} ({} bytes wait in memory)", path_,
                                     std::generic_category().message(error), waiting_.size()),
                         "free some space on this disk");
    }
    waiting_.erase(0, static_cast<size_t>(written));
  }
}

JsonLines::JsonLines(const std::string& path, int64_t last_step, SharedFileSystem files)
    : LineFile(keep_lines(path, last_step, *files, step_of_json), files) {}

void JsonLines::write(const MetricsRecord& record) { append(record.to_json()); }

CsvTable::CsvTable(const std::string& path, std::vector<std::string> columns, int64_t last_step,
                   SharedFileSystem files)
    : LineFile(keep_lines(path, last_step, *files, step_of_row(columns)), files),
      columns_(std::move(columns)) {
  std::error_code ignored;
  if (std::filesystem::file_size(path, ignored) == 0) append(header_of(columns_));
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
  append(fmt::format("{}", fmt::join(cells, ",")));
}

}  // namespace shoal
