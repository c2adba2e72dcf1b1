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
  /// TensorBoard keeps numbers in float32.
  EventSummary& add_scalar(const std::string& tag, double value);
  /// Counts in 30 ranges of equal width from the smallest value to the largest; one range if these
  /// are equal. No values add nothing. Values are finite.
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

/// What a step adds to an EventFile.
struct StepEvent {
  int64_t step = 0;
  EventSummary summary;
};

/// Appends events to a file that TensorBoard reads: TFRecords (length, masked CRC-32C, bytes,
/// masked CRC-32C) of Event messages, whose few fields are encoded here.
class EventFile : public GrowingFile {
 public:
  /// A new file in `folder`, which is made if it is missing; its name comes after those there, in
  /// the order in which TensorBoard reads. TensorBoard then drops what the older files hold of
  /// `first_step` and later steps. Throws StorageError.
  EventFile(const std::string& folder, int64_t first_step,
            SharedFileSystem files = std::make_shared<PosixFileSystem>());
  /// Throws StorageError while events wait, as GrowingFile::append does.
  void write(const StepEvent& event);
};

/// Whether a file of this name is one that EventFile has made.
bool is_event_file(const std::string& name);

}  // namespace shoal
