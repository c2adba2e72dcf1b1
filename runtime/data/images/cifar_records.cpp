#include "runtime/data/images/cifar_records.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>

#include "runtime/base/error.h"
#include "runtime/files/data_file.h"

namespace shoal {
namespace {

std::string dataset_name(CifarLayout layout) {
  return "CIFAR-" + std::to_string(layout.num_classes);
}

std::string download_hint(CifarLayout layout) {
  return fmt::format(
      "data.path must be the folder of the binary version of {} ({}), and files the names in it",
      dataset_name(layout),
      layout.num_classes == 100 ? "cifar-100-binary" : "cifar-10-batches-bin");
}

/// The number of records in a regular file whose size is a positive multiple of theirs.
int64_t count_records(int descriptor, CifarLayout layout, const std::string& path) {
  const int64_t bytes = ::lseek(descriptor, 0, SEEK_END), record = layout.record_bytes();
  if (bytes > 0 && bytes % record == 0) return bytes / record;
  const std::string rule =
      fmt::format("a {} file is a positive multiple of {} bytes", dataset_name(layout), record);
  if (bytes <= 0) throw DataError(path + ": empty; " + rule, "fetch the file again");
  const CifarLayout other{layout.num_classes == 100 ? 10 : 100};
  throw DataError(fmt::format("{}: {} bytes, record {} has only {} of its bytes; {}", path, bytes,
                              bytes / record, bytes % record, rule),
                  bytes % other.record_bytes() == 0
                      ? fmt::format("it has the size of a {} file: set data.classes to {}",
                                    dataset_name(other), other.num_classes)
                      : "the file was cut short or is another one: fetch it again");
}

/// Fills `out` from the offset; names the record that is missing otherwise.
void read_exactly(int descriptor, std::span<uint8_t> out, int64_t offset, int64_t record,
                  const std::string& path) {
  const std::string where = path + ": record " + std::to_string(record) + ": ";
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw DataError(where + "cannot be read: " + std::strerror(errno));
    if (got == 0) {
      throw DataError(where + "the file became shorter while it was in use",
                      "put the file back and resume");
    }
    out = out.subspan(static_cast<size_t>(got));
    offset += got;
  }
}

/// What is wrong with the labels of record `index`, whose bytes these are, if anything.
std::optional<BadCifarRecord> find_bad_label(std::span<const uint8_t> bytes, CifarLayout layout,
                                             int64_t index) {
  constexpr int64_t kCoarseClasses = 20;
  for (int64_t byte = 0; byte < layout.label_bytes(); ++byte) {
    const bool is_coarse = layout.num_classes == 100 && byte == 0;
    const int64_t allowed = is_coarse ? kCoarseClasses : layout.num_classes;
    const int64_t label = bytes[static_cast<size_t>(byte)];
    if (label < allowed) continue;
    const char* kind = layout.num_classes == 10 ? "" : is_coarse ? "coarse " : "fine ";
    return BadCifarRecord{index,
                          fmt::format("record {} (byte {}): {}label {}, must be below {}", index,
                                      index * layout.record_bytes() + byte, kind, label, allowed)};
  }
  return std::nullopt;
}

[[noreturn]] void throw_bad_record(const BadCifarRecord& bad, CifarLayout layout,
                                   const std::string& path) {
  throw DataError(path + ": " + bad.what, "the file is damaged or is not a " +
                                              dataset_name(layout) +
                                              " file: fetch it again, or set data.classes");
}

}  // namespace

CifarFile::CifarFile(const std::string& path, CifarLayout layout, size_t most_bad)
    : CifarFile(open_data_file(path, download_hint(layout)), path, layout) {
  constexpr int64_t kRecordsAtOnce = 256;
  size_ = count_records(descriptor_, layout, path);
  const auto record_bytes = static_cast<size_t>(layout.record_bytes());
  std::vector<uint8_t> buffer;
  for (int64_t first = 0; first < size_; first += kRecordsAtOnce) {
    const int64_t count = std::min(kRecordsAtOnce, size_ - first);
    buffer.resize(static_cast<size_t>(count) * record_bytes);
    read_exactly(descriptor_, buffer, first * layout.record_bytes(), first, path);
    for (int64_t i = 0; i < count; ++i) {
      const std::span<const uint8_t> record(buffer.data() + static_cast<size_t>(i) * record_bytes,
                                            record_bytes);
      const auto bad = find_bad_label(record, layout, first + i);
      if (bad && bad_records_.size() == most_bad) throw_bad_record(*bad, layout, path);
      if (bad) bad_records_.push_back(*bad);
    }
  }
}

CifarFile::~CifarFile() { ::close(descriptor_); }

CifarRecord CifarFile::read(int64_t index) const {
  if (index < 0 || index >= size_) {
    throw DataError(path_ + ": record " + std::to_string(index) + " of " + std::to_string(size_));
  }
  CifarRecord record;
  record.pixel_CHW.resize(static_cast<size_t>(layout_.record_bytes()));
  const int64_t offset = index * layout_.record_bytes();
  read_exactly(descriptor_, record.pixel_CHW, offset, index, path_);
  if (const auto bad = find_bad_label(record.pixel_CHW, layout_, index)) {
    throw_bad_record(*bad, layout_, path_);
  }
  const int64_t label_bytes = layout_.label_bytes();
  record.label = record.pixel_CHW[static_cast<size_t>(label_bytes - 1)];
  record.pixel_CHW.erase(record.pixel_CHW.begin(), record.pixel_CHW.begin() + label_bytes);
  return record;
}

}  // namespace shoal
