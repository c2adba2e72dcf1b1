#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace shoal {

/// One record of a metrics file: keys in the order they were added.
class MetricsRecord {
 public:
  using Value = std::variant<int64_t, double, std::string, std::vector<int64_t>>;

  MetricsRecord& add(const std::string& key, int64_t value);
  MetricsRecord& add(const std::string& key, double value);
  MetricsRecord& add(const std::string& key, const std::string& value);
  MetricsRecord& add(const std::string& key, std::vector<int64_t> values);
  /// Adds `key`, and `key_hex` with the exact bits as a C99 hex float.
  MetricsRecord& add_exact(const std::string& key, double value);

  const std::vector<std::pair<std::string, Value>>& entries() const { return entries_; }
  /// One line of JSON without line end; numbers that are not finite become null.
  std::string to_json() const;

 private:
  std::vector<std::pair<std::string, Value>> entries_;
};

/// `0x1.8p+1`; `nan`, `inf`, `-inf` as printf writes them.
std::string hex_float(double value);

/// Appends records to a file, one JSON object a line, flushed line by line.
class JsonLines {
 public:
  /// Keeps the lines of an existing file whose "step" is at most `last_step`, and drops the rest:
  /// a resumed run writes them again. Throws StorageError.
  JsonLines(std::string path, int64_t last_step);
  void write(const MetricsRecord& record);

 private:
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

/// The same records as comma-separated values with fixed columns; keys that are no column are left
/// out, columns that a record lacks stay empty.
class CsvTable {
 public:
  /// Column "step" must be among `columns`; lines after `last_step` are dropped. Throws
  /// StorageError.
  CsvTable(std::string path, std::vector<std::string> columns, int64_t last_step);
  void write(const MetricsRecord& record);

 private:
  std::string path_;
  std::vector<std::string> columns_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace shoal
