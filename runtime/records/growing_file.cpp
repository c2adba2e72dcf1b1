#include "runtime/records/growing_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {

GrowingFile::GrowingFile(std::string path, std::string noun, SharedFileSystem files,
                         size_t most_waiting_bytes)
    : files_(std::move(files)),
      path_(std::move(path)),
      noun_(std::move(noun)),
      most_waiting_bytes_(most_waiting_bytes) {
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
      waiting_(std::move(other.waiting_)),
      most_waiting_bytes_(other.most_waiting_bytes_),
      waiting_bytes_(std::exchange(other.waiting_bytes_, 0)),
      num_dropped_(std::exchange(other.num_dropped_, 0)) {}

GrowingFile::~GrowingFile() {
  if (file_ < 0) return;
  try {
    write_waiting();
  } catch (const StorageError&) {
  }
  files_->close(file_);
}

void GrowingFile::append(std::string_view record) {
  const bool is_dropped = !waiting_.empty() && waiting_bytes_ + record.size() > most_waiting_bytes_;
  if (is_dropped) {
    ++num_dropped_;
  } else {
    waiting_.emplace_back(record);
    waiting_bytes_ += record.size();
  }
  write_waiting();
}

void GrowingFile::finish() {
  try {
    write_waiting();
  } catch (const StorageError& error) {
    const int64_t lost = std::ssize(waiting_) + num_dropped_;
    throw StorageError(fmt::format("{}: {} lost", error.what(), counted(lost, noun_)),
                       error.hint());
  }
  if (num_dropped_ == 0) return;
  throw StorageError(fmt::format("write '{}': {} lost while it could not be written", path_,
                                 counted(num_dropped_, noun_)));
}

void GrowingFile::write_waiting() {
  while (!waiting_.empty()) {
    std::string& record = waiting_.front();
    const int64_t written = files_->write(file_, record.data(), record.size());
    if (written == -EINTR) continue;
    if (written <= 0) {
      const int error = written == 0 ? EIO : static_cast<int>(-written);
      const std::string dropped =
          num_dropped_ == 0 ? "" : fmt::format(", {} dropped", counted(num_dropped_, noun_));
      throw StorageError(
          fmt::format("write '{}': {} ({} bytes wait in memory{})", path_,
                      std::generic_category().message(error), waiting_bytes_, dropped),
          "free some space on this disk");
    }
    record.erase(0, static_cast<size_t>(written));
    waiting_bytes_ -= static_cast<size_t>(written);
    if (record.empty()) waiting_.pop_front();
  }
}

}  // namespace shoal
