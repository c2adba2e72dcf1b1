#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/records/growing_file.h"

namespace shoal {

/// Named numbers, histograms and pictures for TensorBoard, encoded as a Summary message.
class EventSummary {
 public:
  /// Adds a number, which TensorBoard stores as float32.
  EventSummary& add_scalar(const std::string& tag, double value);
  /// Adds a histogram with 30 ranges of equal width from the smallest value to the largest, or one
  /// range if these are equal. Without values adds nothing. Values must be finite.
  EventSummary& add_histogram(const std::string& tag, const std::vector<double>& values);
  /// A PNG file of three channels.
  struct Image {
    int64_t width = 0, height = 0;
    std::string png;
  };
  EventSummary& add_image(const std::string& tag, const Image& image);

  const std::string& bytes() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }

 private:
  std::string bytes_;
};

/// The events of one step.
struct StepEvent {
  int64_t step = 0;
  EventSummary summary;
};

/// Appends events to a file that TensorBoard reads: TFRecords (length, masked CRC-32C, bytes,
/// masked CRC-32C) of Event messages, encoded here.
class EventFile : public GrowingFile {
 public:
  /// Creates a file in `folder`, which is created too if missing. The file's name sorts behind
  /// those of existing files, so that TensorBoard reads it last and then drops events of
  /// `first_step` and later in the older files. Throws StorageError.
  EventFile(const std::string& folder, int64_t first_step,
            SharedFileSystem files = std::make_shared<PosixFileSystem>());
  /// If the disk refuses the event, as a full one does, keeps it in memory and throws StorageError;
  /// the next call that can write writes all kept events first.
  void write(const StepEvent& event);
};

/// True for names of files that EventFile makes.
bool is_event_file(const std::string& name);

}  // namespace shoal
