#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/records/growing_file.h"

namespace shoal {

struct PictureColumn;

/// Content of a sheet of a task's pictures: a row a sample, a column a kind of picture.
struct SampleSheet {
  static constexpr int64_t kGap = 1;  ///< pixels between pictures
  struct Column {
    std::string name;             ///< for people
    std::string number;           ///< for people: name of `numbers`
    std::vector<double> numbers;  ///< one for each sample; empty: none
  };
  int64_t step = 0;
  int64_t samples = 0;
  int64_t shrunk_by = 1;  ///< pixels of a sample per pixel of the sheet, along a side
  std::vector<Column> columns;
};

/// Draws as many of these samples (from gather_pictures; at least one) as fit into 2^18 pixels,
/// with large pictures reduced, as a PNG file whose description is the sheet in JSON.
std::string sheet_png(const std::vector<PictureColumn>& columns, int64_t step);

/// Reads a sheet's content back; nothing if sheet_png did not make the bytes.
std::optional<SampleSheet> read_sheet(std::string_view png);

/// `pictures.png` in a run's folder: the sheet of the last evaluation.
class SheetFile {
 public:
  /// Removes a sheet of a step that a resume discards, after `last_step`. Throws StorageError.
  SheetFile(std::string path, int64_t last_step,
            SharedFileSystem files = std::make_shared<PosixFileSystem>());
  /// Replaces the sheet. Throws StorageError; the new sheet is then kept for finish().
  void write(const std::string& png);
  /// Tries once more to write a kept sheet. Throws StorageError if it is lost.
  void finish();

 private:
  SharedFileSystem files_;
  std::string path_;
  std::optional<std::string> waiting_;
};

}  // namespace shoal
