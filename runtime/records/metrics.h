#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/records/growing_file.h"

namespace shoal {

/// One record of a metrics file: keys in the order they were added.
class MetricsRecord {
 public:
  using Value =
      std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>>;

  MetricsRecord& add(const std::string& key, Value value);
  /// Adds `key`, and `key_hex` with the exact bits as a C99 hex float.
  MetricsRecord& add_exact(const std::string& key, double value);

  const std::vector<std::pair<std::string, Value>>& entries() const { return entries_; }
  /// One line of JSON without line end; numbers that are not finite become null.
  std::string to_json() const;

 private:
  std::vector<std::pair<std::string, Value>> entries_;
};

/// Which sign a NaN has differs between machines and means nothing.
double without_sign_if_nan(double value);

/// `0x1.8p+1`; `nan`, `inf`, `-inf` as printf writes them.
std::string hex_float(double value);

/// A text file that grows by whole lines.
class LineFile : public GrowingFile {
 public:
  /// As GrowingFile.
  LineFile(std::string path, SharedFileSystem files);
  /// `line` without its end. Throws StorageError while lines wait.
  void append(const std::string& line);
};

/// Appends records to a file, one JSON object a line.
class JsonLines : public LineFile {
 public:
  /// Keeps the lines of an existing file whose "step" is at most `last_step`, and drops the rest:
  /// a resumed run writes them again. Throws StorageError, also if `path` is no regular file.
  JsonLines(const std::string& path, int64_t last_step,
            SharedFileSystem files = std::make_shared<PosixFileSystem>());
  /// Throws StorageError as LineFile does.
  void write(const MetricsRecord& record);
};

/// The same records as comma-separated values with fixed columns; keys that are no column are left
/// out, columns that a record lacks stay empty.
class CsvTable : public LineFile {
 public:
  /// Column "step" must be among `columns`; lines after `last_step` are dropped. Of a file with
  /// other columns the lines are rewritten to these, and columns that are not among them follow, so
  /// that nothing is lost. Throws StorageError.
  CsvTable(const std::string& path, std::vector<std::string> columns, int64_t last_step,
           SharedFileSystem files = std::make_shared<PosixFileSystem>());
  /// Throws StorageError as LineFile does.
  void write(const MetricsRecord& record);

 private:
  std::vector<std::string> columns_;
};

}  // namespace shoal
