#include "runtime/data/cifar_records.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file_system.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

std::string dataset_name(CifarLayout layout) {
  return "CIFAR-" + std::to_string(layout.num_classes);
}

std::string download_hint(CifarLayout layout) {
  return "data.path must be the folder of the binary version of " + dataset_name(layout) + " (" +
         (layout.num_classes == 100 ? "cifar-100-binary" : "cifar-10-batches-bin") +
         "), and files the names in it";
}

/// "it holds a, b, c and 4 more", in order of name.
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
  std::string text = "which holds";
  for (size_t i = 0; i < std::min(names.size(), kMostNames); ++i) {
    text += (i == 0 ? " " : ", ") + names[i];
  }
  if (names.size() > kMostNames) {
    text += " and " + std::to_string(names.size() - kMostNames) + " more";
  }
  return text;
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
    return DataError(
        path + ": '" + missing.string() + "' is a link to '" + *target + "' and leads nowhere",
        "put the data back there, or mend the link");
  }
  const fs::path parent = missing.parent_path();
  return DataError(path + ": no '" + missing.filename().string() + "' in " + parent.string() +
                       ", " + contents_of(parent),
                   download_hint(layout));
}

struct OpenFile {
  int descriptor;
  int64_t bytes;
};

OpenFile open_regular(const std::string& path, CifarLayout layout) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    if (errno == ENOENT || errno == ENOTDIR) throw missing_file(path, layout);
    throw DataError(path + ": cannot be opened: " + std::strerror(errno));
  }
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    throw DataError(path + ": is not a regular file", download_hint(layout));
  }
  return {descriptor, status.st_size};
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

[[noreturn]] void throw_bad_record(const BadCifarRecord& bad, CifarLayout layout,
                                   const std::string& path) {
  throw DataError(path + ": " + bad.what, "the file is damaged or is no " + dataset_name(layout) +
                                              " file: fetch it again, or set data.classes");
}

}  // namespace

int64_t num_cifar_records(int64_t file_bytes, CifarLayout layout, const std::string& name) {
  const int64_t record = layout.record_bytes();
  if (file_bytes > 0 && file_bytes % record == 0) return file_bytes / record;
  const std::string rule = "a " + dataset_name(layout) + " file is a positive multiple of " +
                           std::to_string(record) + " bytes";
  if (file_bytes <= 0) throw DataError(name + ": empty; " + rule, "fetch the file again");
  const CifarLayout other{layout.num_classes == 100 ? 10 : 100};
  const std::string hint = file_bytes % other.record_bytes() == 0
                               ? "it has the size of a " + dataset_name(other) +
                                     " file: set data.classes to " +
                                     std::to_string(other.num_classes)
                               : "the file was cut short or is another one: fetch it again";
  throw DataError(name + ": " + std::to_string(file_bytes) + " bytes, record " +
                      std::to_string(file_bytes / record) + " has only " +
                      std::to_string(file_bytes % record) + " of its bytes; " + rule,
                  hint);
}

std::vector<BadCifarRecord> find_bad_cifar_labels(std::span<const uint8_t> bytes,
                                                  CifarLayout layout, int64_t first, size_t limit) {
  constexpr int64_t kCoarseClasses = 20;
  const auto record_bytes = static_cast<size_t>(layout.record_bytes());
  std::vector<BadCifarRecord> bad;
  for (size_t at = 0; at + record_bytes <= bytes.size() && bad.size() < limit; at += record_bytes) {
    const int64_t record = first + static_cast<int64_t>(at / record_bytes);
    for (int64_t byte = 0; byte < layout.label_bytes(); ++byte) {
      const bool is_coarse = layout.num_classes == 100 && byte == 0;
      const int64_t allowed = is_coarse ? kCoarseClasses : layout.num_classes;
      const int64_t label = bytes[at + static_cast<size_t>(byte)];
      if (label < allowed) continue;
      const char* kind = layout.num_classes == 10 ? "" : is_coarse ? "coarse " : "fine ";
      bad.push_back({record, "record " + std::to_string(record) + " (byte " +
                                 std::to_string(record * layout.record_bytes() + byte) +
                                 "): " + kind + "label " + std::to_string(label) +
                                 ", must be below " + std::to_string(allowed)});
      break;
    }
  }
  return bad;
}

CifarFile::CifarFile(const std::string& path, CifarLayout layout, size_t most_bad)
    : path_(path), layout_(layout) {
  constexpr int64_t kRecordsAtOnce = 256;
  const OpenFile file = open_regular(path, layout);
  descriptor_ = file.descriptor;
  try {
    size_ = num_cifar_records(file.bytes, layout, path);
    std::vector<uint8_t> buffer;
    for (int64_t first = 0; first < size_; first += kRecordsAtOnce) {
      const int64_t count = std::min(kRecordsAtOnce, size_ - first);
      buffer.resize(static_cast<size_t>(count * layout.record_bytes()));
      read_exactly(descriptor_, buffer, first * layout.record_bytes(), first, path);
      const size_t left = most_bad - bad_records_.size();
      for (BadCifarRecord& bad : find_bad_cifar_labels(buffer, layout, first, left + 1)) {
        bad_records_.push_back(std::move(bad));
      }
      if (bad_records_.size() > most_bad) throw_bad_record(bad_records_.back(), layout, path);
    }
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

CifarFile::CifarFile(CifarFile&& other) noexcept
    : path_(std::move(other.path_)),
      layout_(other.layout_),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(std::exchange(other.size_, 0)),
      bad_records_(std::move(other.bad_records_)) {}

CifarFile::~CifarFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

CifarRecord CifarFile::read(int64_t index) const {
  if (index < 0 || index >= size_) {
    throw DataError(path_ + ": record " + std::to_string(index) + " of " + std::to_string(size_));
  }
  CifarRecord record;
  record.pixel_CHW.resize(static_cast<size_t>(layout_.record_bytes()));
  const int64_t offset = index * layout_.record_bytes();
  read_exactly(descriptor_, record.pixel_CHW, offset, index, path_);
  const auto bad = find_bad_cifar_labels(record.pixel_CHW, layout_, index, 1);
  if (!bad.empty()) throw_bad_record(bad.front(), layout_, path_);
  const int64_t label_bytes = layout_.label_bytes();
  record.label = record.pixel_CHW[static_cast<size_t>(label_bytes - 1)];
  record.pixel_CHW.erase(record.pixel_CHW.begin(), record.pixel_CHW.begin() + label_bytes);
  return record;
}

}  // namespace shoal
