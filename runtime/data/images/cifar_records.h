#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

/// CIFAR's official binary layout: records one after the other, no header. CIFAR-10: one label byte
/// and 3072 pixel bytes; CIFAR-100: coarse label, fine label and 3072 pixel bytes. Pixels are 32×32
/// planes of red, green and blue.
struct CifarLayout {
  static constexpr int64_t kSide = 32;
  static constexpr int64_t kChannels = 3;
  static constexpr int64_t kImageBytes = kChannels * kSide * kSide;

  int64_t num_classes = 10;  ///< 10 or 100

  int64_t label_bytes() const { return num_classes == 100 ? 2 : 1; }
  int64_t record_bytes() const { return label_bytes() + kImageBytes; }
};

/// One image and its label; the fine label of CIFAR-100.
struct CifarRecord {
  int64_t label = 0;
  std::vector<uint8_t> pixel_CHW;
};

/// A record whose label is out of range.
struct BadCifarRecord {
  int64_t index = 0;  ///< of the record in its file, from 0
  std::string what;   ///< message with record, byte offset, label and limit
};

/// An open CIFAR file. The constructor checks size and every label; pixels stay on disk and are
/// read record by record, so that ranks of one machine share them in the page cache.
class CifarFile {
 public:
  /// Throws: DataError if the file is missing (lists the folder's content), is not a regular file,
  /// has a wrong size or more than `most_bad` wrong labels.
  CifarFile(const std::string& path, CifarLayout layout, size_t most_bad = 0);
  ~CifarFile();
  CifarFile(const CifarFile&) = delete;
  CifarFile& operator=(const CifarFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  ///< records
  /// Records with wrong labels, in order; empty unless `most_bad` allows them.
  const std::vector<BadCifarRecord>& bad_records() const { return bad_records_; }

  /// Reads record `index`, 0 <= index < size(). Safe from several threads at once.
  /// Throws: DataError if the file shrank, cannot be read, or now holds a wrong label.
  CifarRecord read(int64_t index) const;

 private:
  /// Opens without checks; the destructor closes the file even if a later check throws.
  CifarFile(int descriptor, const std::string& path, CifarLayout layout)
      : path_(path), layout_(layout), descriptor_(descriptor) {}

  std::string path_;
  CifarLayout layout_;
  int descriptor_;
  int64_t size_ = 0;
  std::vector<BadCifarRecord> bad_records_;
};

}  // namespace shoal
