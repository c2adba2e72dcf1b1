#include "runtime/files/data_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/files/file_system.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

/// True if the first letters are equal, whatever their case, or one name is nearly the other.
bool is_similar(const std::string& a, const std::string& b) {
  constexpr size_t kAlike = 4;
  const auto is_same = [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  };
  const auto first = std::ranges::mismatch(a, b, is_same).in1;
  return first - a.begin() >= static_cast<std::ptrdiff_t>(std::min({kAlike, a.size(), b.size()})) ||
         !nearest(a, {b}).empty();
}

/// "which holds 'a' and 4 more": some names like the missing one, or all names if they are few.
std::string contents_of(const fs::path& folder, const std::string& missing) {
  constexpr size_t kMostNames = 4;
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    names.push_back(it->path().filename().string());
  }
  if (failed) return "which cannot be listed: " + failed.message();
  if (names.empty()) return "which is empty";
  const size_t total = names.size();
  std::ranges::sort(names);
  if (total > kMostNames) {
    std::erase_if(names, [&](const std::string& name) { return !is_similar(name, missing); });
    names.resize(std::min(names.size(), kMostNames));
  }
  if (names.empty()) return fmt::format("which holds {} others", total);
  const size_t more = total - names.size();
  return "which holds " + join_words(names) + (more > 0 ? fmt::format(" and {} more", more) : "");
}

DataError missing_file(const std::string& path, const std::string& hint) {
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
  const std::string name = missing.filename().string();
  return DataError(
      fmt::format("{}: no '{}' in {}, {}", path, name, parent.string(), contents_of(parent, name)),
      hint);
}

}  // namespace

int open_data_file(const std::string& path, const std::string& hint) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    if (errno == ENOENT || errno == ENOTDIR) throw missing_file(path, hint);
    throw DataError(path + ": cannot be opened: " + std::strerror(errno));
  }
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)) return descriptor;
  ::close(descriptor);
  throw DataError(path + ": is not a regular file", hint);
}

bool is_named_pipe(const std::string& path) {
  std::error_code ignored;
  const bool is_open =
      path.starts_with("/dev/fd/") || path.starts_with("/proc/self/fd/") || path == "/dev/stdin";
  return !is_open && fs::is_fifo(path, ignored);
}

std::ifstream open_unless_pipe(const std::string& path) {
  std::ifstream file;
  if (is_named_pipe(path)) {
    file.setstate(std::ios::failbit);
  } else {
    file.open(path, std::ios::binary);
  }
  return file;
}

std::string text_of_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();  // an iterator would throw where reading fails
  return text.str();
}

bool data_file_exists(const std::string& path) {
  std::error_code failed;
  const bool is_there = fs::exists(path, failed);
  if (failed) throw DataError(path + ": cannot be looked up: " + failed.message());
  return is_there;
}

MappedFile::MappedFile(const std::string& path, const std::string& hint) : path_(path) {
  const int descriptor = open_data_file(path, hint);
  const off_t size = ::lseek(descriptor, 0, SEEK_END);
  void* start = nullptr;
  if (size > 0) {
    start = ::mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_SHARED, descriptor, 0);
  }
  const int error = errno;
  ::close(descriptor);
  if (size < 0 || start == MAP_FAILED) {
    throw DataError(path + ": cannot be mapped: " + std::strerror(error));
  }
  bytes_ = {static_cast<const std::byte*>(start), static_cast<size_t>(size)};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      bytes_(std::exchange(other.bytes_, std::span<const std::byte>())) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace shoal
