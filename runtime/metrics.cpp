#include "runtime/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "runtime/error.h"

namespace shoal {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
// The step of a line, or nothing for a line that is broken or has none.
using StepOfLine = std::function<std::optional<int64_t>(const std::string&)>;

[[noreturn]] void fail(const std::string& path, const char* doing) {
  throw StorageError(fmt::format("{} '{}': {}", doing, path, std::strerror(errno)));
}

File append_to(const std::string& path) {
  File file(std::fopen(path.c_str(), "ab"), &std::fclose);
  if (!file) fail(path, "opening");
  return file;
}

void put_line(std::FILE* file, const std::string& path, const std::string& line) {
  if (std::fputs((line + "\n").c_str(), file) < 0 || std::fflush(file) != 0) fail(path, "writing");
}

// Rewritten beside and renamed, so that a crash leaves the old file or the new one.
void keep_lines(const std::string& path, int64_t last_step, const StepOfLine& step_of) {
  std::ifstream old(path);
  if (!old) return;
  const std::string fresh = path + ".new";
  std::ofstream kept(fresh, std::ios::trunc);
  for (std::string line; std::getline(old, line);) {
    if (old.eof()) break;  // a line without its end was cut off by a crash
    const std::optional<int64_t> step = step_of(line);
    if (step && *step <= last_step) kept << line << '\n';
  }
  kept.close();
  if (!kept) fail(fresh, "writing");
  std::filesystem::rename(fresh, path);
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

std::string cell_text(const MetricsRecord::Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const auto* real = std::get_if<double>(&value)) return fmt::format("{}", *real);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return "";
}

}  // namespace

MetricsRecord& MetricsRecord::add(const std::string& key, int64_t value) {
  entries_.emplace_back(key, value);
  return *this;
}

MetricsRecord& MetricsRecord::add(const std::string& key, double value) {
  entries_.emplace_back(key, value);
  return *this;
}

MetricsRecord& MetricsRecord::add(const std::string& key, const std::string& value) {
  entries_.emplace_back(key, value);
  return *this;
}

MetricsRecord& MetricsRecord::add(const std::string& key, std::vector<int64_t> values) {
  entries_.emplace_back(key, std::move(values));
  return *this;
}

MetricsRecord& MetricsRecord::add_exact(const std::string& key, double value) {
  return add(key, value).add(key + "_hex", hex_float(value));
}

std::string MetricsRecord::to_json() const {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [key, value] : entries_) {
    std::visit([&, &key = key](const auto& held) { json[key] = held; }, value);
  }
  return json.dump();
}

std::string hex_float(double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%a", value);
  return text.data();
}

JsonLines::JsonLines(std::string path, int64_t last_step)
    : path_(std::move(path)), file_(nullptr, &std::fclose) {
  keep_lines(path_, last_step, step_of_json);
  file_ = append_to(path_);
}

void JsonLines::write(const MetricsRecord& record) {
  put_line(file_.get(), path_, record.to_json());
}

CsvTable::CsvTable(std::string path, std::vector<std::string> columns, int64_t last_step)
    : path_(std::move(path)), columns_(std::move(columns)), file_(nullptr, &std::fclose) {
  const std::string header = fmt::format("{}", fmt::join(columns_, ","));
  const auto step =
      static_cast<size_t>(std::find(columns_.begin(), columns_.end(), "step") - columns_.begin());
  keep_lines(path_, last_step, [&](const std::string& line) -> std::optional<int64_t> {
    if (line == header) return INT64_MIN;
    const std::vector<std::string> cells = split_cells(line);
    if (step >= cells.size()) return std::nullopt;
    char* end = nullptr;
    const int64_t value = std::strtoll(cells[step].c_str(), &end, 10);
    return *end == '\0' ? std::optional<int64_t>(value) : std::nullopt;
  });
  const bool is_new = !std::filesystem::exists(path_) || std::filesystem::file_size(path_) == 0;
  file_ = append_to(path_);
  if (is_new) put_line(file_.get(), path_, header);
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
  put_line(file_.get(), path_, fmt::format("{}", fmt::join(cells, ",")));
}

}  // namespace shoal
