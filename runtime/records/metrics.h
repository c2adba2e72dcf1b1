#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/records/growing_file.h"

namespace shoal {

/// One record of a metrics file: values by key, in the order in which they were added.
class MetricsRecord {
 public:
  using Value =
      std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>>;

  MetricsRecord& add(const std::string& key, Value value);
  /// Adds the value as `key`, and the exact value in C99 hex as `key_hex`.
  MetricsRecord& add_exact(const std::string& key, double value);

  const std::vector<std::pair<std::string, Value>>& entries() const { return entries_; }
  /// One line of JSON, without the line end. NaN and infinities become null.
  std::string to_json() const;

 private:
  std::vector<std::pair<std::string, Value>> entries_;
};

/// Returns the value. A NaN loses its sign, which differs between machines.
double without_sign_if_nan(double value);

/// The value as a C99 hex float, `0x1.8p+1`; `nan`, `inf` or `-inf` if it is not finite.
std::string hex_float(double value);

/// A text file to which whole lines are appended.
class LineFile : public GrowingFile {
 public:
  LineFile(std::string path, SharedFileSystem files);  ///< throws StorageError if it cannot open
  /// Appends `line` and a line end. Throws StorageError while lines wait in memory for disk space:
  /// the next call writes them, also the line of this call, so do not append it again.
  void append(const std::string& line);
};

/// Appends records to a file, one JSON object per line.
class JsonLines : public LineFile {
 public:
  /// Removes broken lines, and lines whose "step" is above `last_step`, which a resumed run writes
  /// again. Throws StorageError, also if `path` is not a regular file.
  JsonLines(const std::string& path, int64_t last_step,
            SharedFileSystem files = std::make_shared<PosixFileSystem>());
  void write(const MetricsRecord& record);  ///< throws like append()
};

/// Writes records as comma-separated values. The columns are fixed: a cell is empty if a record
/// lacks its key, and values of other keys are left out.
class CsvTable : public LineFile {
 public:
  /// `columns` must include "step". Removes rows of an existing file after `last_step`. If the file
  /// has other columns, its rows are rewritten to `columns`, followed by the file's other columns,
  /// so that no value is lost. Throws StorageError.
  CsvTable(const std::string& path, std::vector<std::string> columns, int64_t last_step,
           SharedFileSystem files = std::make_shared<PosixFileSystem>());
  void write(const MetricsRecord& record);  ///< throws like append()

 private:
  std::vector<std::string> columns_;
};

}  // namespace shoal
