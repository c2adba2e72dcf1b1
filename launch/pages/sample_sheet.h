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

/// What is on a sheet of pictures that a task draws of samples: a row a sample, a column a picture.
struct SampleSheet {
  static constexpr int64_t kGap = 1;  ///< between pictures, pixels
  struct Column {
    std::string name;             ///< for people
    std::string number;           ///< for people: what `numbers` are
    std::vector<double> numbers;  ///< one a sample; empty: none
  };
  int64_t step = 0;
  int64_t samples = 0;
  int64_t shrunk_by = 1;  ///< pixels of a sample's side that one of the sheet's stands for
  std::vector<Column> columns;
};

/// The sheet of so many of these samples (gather_pictures; at least one) as fit 2^18 pixels, large
/// pictures shrunk, as a PNG file whose description is the sheet in JSON.
std::string sheet_png(const std::vector<PictureColumn>& columns, int64_t step);

/// What is on it; nothing if the bytes are none that sheet_png made.
std::optional<SampleSheet> read_sheet(std::string_view png);

/// `pictures.png` of a run's folder: the sheet of the last evaluation.
class SheetFile {
 public:
  /// Removes a sheet of a step after `last_step`, which a resumed run has abandoned. Throws
  /// StorageError.
  SheetFile(std::string path, int64_t last_step,
            SharedFileSystem files = std::make_shared<PosixFileSystem>());
  /// Replaces the sheet. Throws StorageError; then the new one waits for finish().
  void write(const std::string& png);
  /// Tries once more what waits. Throws StorageError if it is lost.
  void finish();

 private:
  SharedFileSystem files_;
  std::string path_;
  std::optional<std::string> waiting_;
};

}  // namespace shoal
