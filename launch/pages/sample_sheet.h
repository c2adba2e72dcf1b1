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

/// Titles and numbers of a sheet, a PNG of pictures that a task draws of evaluated samples: a row
/// per sample, and a column per kind, such as a denoiser's clean, noisy and restored images.
struct SampleSheet {
  static constexpr int64_t kGap = 1;  ///< pixels between pictures
  struct Column {
    std::string name;             ///< column title
    std::string number;           ///< label of `numbers`, such as "PSNR (dB)"
    std::vector<double> numbers;  ///< one per picture; empty: none
  };
  int64_t step = 0;  ///< optimizer step of the evaluation
  int64_t samples = 0;
  int64_t shrunk_by = 1;  ///< factor by which pictures are reduced
  std::vector<Column> columns;
};

/// Draws as many samples as fit into 2^18 pixels, at least one, as a PNG; large pictures are
/// reduced. `columns`: from gather_pictures(). The PNG's description is the SampleSheet as JSON.
std::string sheet_png(const std::vector<PictureColumn>& columns, int64_t step);

/// Reads the sheet's titles and numbers; nullopt unless the bytes were made by sheet_png().
std::optional<SampleSheet> read_sheet(std::string_view png);

/// The file `pictures.png` in a run folder, with the sheet of the last evaluation.
class SheetFile {
 public:
  /// Removes a sheet of a step after `last_step`, which a resume discards. Throws StorageError.
  SheetFile(std::string path, int64_t last_step,
            SharedFileSystem files = std::make_shared<PosixFileSystem>());
  /// Replaces the file. Throws StorageError; finish() then tries to write `png` again.
  void write(const std::string& png);
  /// Retries a failed write(). Throws StorageError if that fails, too.
  void finish();

 private:
  SharedFileSystem files_;
  std::string path_;
  std::optional<std::string> waiting_;
};

}  // namespace shoal
