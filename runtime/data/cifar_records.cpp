#include "runtime/data/cifar_records.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>

#include "runtime/base/error.h"
#include "runtime/base/file_system.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

std::string dataset_name(CifarLayout layout) {
  return "CIFAR-" + std::to_string(layout.num_classes);
}

std::string download_hint(CifarLayout layout) {
  return fmt::format(
      "data.path must be the folder of the binary version of {} ({}), and files the names in it",
      dataset_name(layout),
      layout.num_classes == 100 ? "cifar-100-binary" : "cifar-10-batches-bin");
}

/// "which holds a, b, c and 4 more", in order of name.
std::string contents_of(const fs::path& folder) {
  constexpr size_t kMostNames = 12;
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    names.push_back(it->path().filename().string());
  }
  if (failed) return "which cannot be listed: " + failed.message();
  if (names.empty()) return "which is empty";
  std::sort(names.begin(), names.end());
  const size_t shown = std::min(names.size(), kMostNames), more = names.size() - shown;
  names.resize(shown);
  return "which holds " + join_words(names) + (more > 0 ? fmt::format(" and {} more", more) : "");
}

/// Names the first part of the path that is missing and what lies beside it, or the link that leads
/// nowhere.
DataError missing_file(const std::string& path, CifarLayout layout) {
  fs::path missing = fs::absolute(path).lexically_normal();
  std::error_code ignored;
  while (missing.has_parent_path() && missing != missing.parent_path() &&
         !fs::exists(missing.parent_path(), ignored)) {
    missing = missing.parent_path();
  }
  if (const std::optional<std::string> target = link_target(missing.string())) {
    return DataError(fmt::format("{}: '{}' is a link to '{}' and leads nowhere", path,
                                 missing.string(), *target),
                     "put the data back there, or mend the link");
  }
  const fs::path parent = missing.parent_path();
  return DataError(fmt::format("{}: no '{}' in {}, {}", path, missing.filename().string(),
                               parent.string(), contents_of(parent)),
                   download_hint(layout));
}

int open_for_reading(const std::string& path, CifarLayout layout) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor >= 0) return descriptor;
  if (errno == ENOENT || errno == ENOTDIR) throw missing_file(path, layout);
  throw DataError(path + ": cannot be opened: " + std::strerror(errno));
}

/// The number of records in a regular file whose size is a positive multiple of theirs.
int64_t count_records(int descriptor, CifarLayout layout, const std::string& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    throw DataError(path + ": is not a regular file", download_hint(layout));
  }
  const int64_t bytes = status.st_size, record = layout.record_bytes();
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
  throw DataError(path + ": " + bad.what, "the file is damaged or is no " + dataset_name(layout) +
                                              " file: fetch it again, or set data.classes");
}

}  // namespace

CifarFile::CifarFile(const std::string& path, CifarLayout layout, size_t most_bad)
    : CifarFile(open_for_reading(path, layout), path, layout) {
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
