#include "runtime/base/growing_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {

GrowingFile::GrowingFile(std::string path, std::string noun, SharedFileSystem files)
    : files_(std::move(files)), path_(std::move(path)), noun_(std::move(noun)) {
  file_ = files_->open(path_, FileSystem::Mode::kAppend);
  if (file_ < 0) {
    throw StorageError(
        fmt::format("open '{}': {}", path_, std::generic_category().message(-file_)));
  }
}

GrowingFile::GrowingFile(GrowingFile&& other) noexcept
    : files_(std::move(other.files_)),
      path_(std::move(other.path_)),
      noun_(std::move(other.noun_)),
      file_(std::exchange(other.file_, -1)),
      waiting_(std::move(other.waiting_)) {}

GrowingFile::~GrowingFile() {
  if (file_ < 0) return;
  try {
    write_waiting();
  } catch (const StorageError&) {
  }
  files_->close(file_);
}

void GrowingFile::append(std::string_view record) {
  waiting_.emplace_back(record);
  write_waiting();
}

void GrowingFile::finish() {
  try {
    write_waiting();
  } catch (const StorageError& error) {
    throw StorageError(
        fmt::format("{}: {} lost", error.what(), counted(std::ssize(waiting_), noun_)),
        error.hint());
  }
}

void GrowingFile::write_waiting() {
  while (!waiting_.empty()) {
    std::string& record = waiting_.front();
    const int64_t written = files_->write(file_, record.data(), record.size());
    if (written == -EINTR) continue;
    if (written <= 0) {
      const int error = written == 0 ? EIO : static_cast<int>(-written);
      size_t bytes = 0;
      for (const std::string& each : waiting_) bytes += each.size();
      throw StorageError(fmt::format("write '{}': {} ({} bytes wait in memory)", path_,
                                     std::generic_category().message(error), bytes),
                         "free some space on this disk");
    }
    record.erase(0, static_cast<size_t>(written));
    if (record.empty()) waiting_.pop_front();
  }
}

}  // namespace shoal
