#include "runtime/data/shards/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

constexpr size_t kBlock = kTarBlockBytes;
constexpr size_t kMostNameBytes = 4096;
constexpr const char* kRemakeArchive =
    "make the archive again, uncompressed, of plain files with names relative to their folder";

/// A part of a header block.
struct TarField {
  size_t offset, bytes;

  std::string_view of(std::string_view header) const { return header.substr(offset, bytes); }
  /// Up to its first zero byte.
  std::string_view text_of(std::string_view header) const {
    const std::string_view field = of(header);
    return field.substr(0, field.find('\0'));
  }
};

constexpr TarField kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kMagic{257, 6},
    kPrefix{345, 155};
constexpr size_t kType = 156;

/// Digits of base 8 between blanks or zero bytes; nothing if there are none, or too many.
std::optional<int64_t> octal_number(std::string_view field) {
  const std::string_view filler(" \0", 2);
  const size_t begin = std::min(field.find_first_not_of(filler), field.size());
  const size_t end = std::min(field.find_first_of(filler, begin), field.size());
  if (begin == end || field.find_first_not_of(filler, end) != field.npos) return std::nullopt;
  return parse_digits(field.substr(begin, end - begin), 8);
}

/// GNU's form of what has no room in octal: big-endian behind a set first bit. Negative numbers,
/// whose second bit is set, and those of more than 63 bits are none.
std::optional<int64_t> base256_number(std::string_view field) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t number = static_cast<unsigned char>(field[0]) & 0x7F;
  for (const char c : field.substr(1)) {
    if (number > kMost >> 8) return std::nullopt;
    number = number << 8 | static_cast<unsigned char>(c);
  }
  return number;
}

std::optional<int64_t> number_in(std::string_view field) {
  return (static_cast<unsigned char>(field[0]) & 0x80) != 0 ? base256_number(field)
                                                            : octal_number(field);
}

/// The sum of the header's bytes, those of the checksum taken for blanks.
int64_t checksum_of(std::string_view header) {
  int64_t sum = 0;
  for (size_t i = 0; i < header.size(); ++i) {
    const bool is_checksum = i >= kChecksum.offset && i < kChecksum.offset + kChecksum.bytes;
    sum += static_cast<unsigned char>(is_checksum ? ' ' : header[i]);
  }
  return sum;
}

bool is_zero(std::string_view bytes) { return bytes.find_first_not_of('\0') == bytes.npos; }

/// What is wrong with members of this type; "" for regular files and folders.
const char* type_problem(char type) {
  switch (type) {
    case '\0':  // as before POSIX
    case '0':
    case '7':  // a contiguous file, which is as any other
    case '5':
      return "";
    case '1':
      return "is a hard link";
    case '2':
    case 'K':
      return "is a symbolic link, or the long target of a link";
    case '3':
    case '4':
      return "is a device";
    case '6':
      return "is a FIFO";
    case 'S':
      return "is a sparse file";
    default:
      return "is of an unknown type";
  }
}

/// What is wrong with a name; "" if nothing is.
std::string name_problem(std::string_view name) {
  if (name.empty()) return "has no name";
  if (name.size() > kMostNameBytes) {
    return fmt::format("has a name of more than {} bytes", kMostNameBytes);
  }
  if (name.front() == '/') return "has an absolute name";
  if (name.find('\0') != name.npos) return "has a zero byte in its name";
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    if (name.substr(begin, end - begin) == "..") return "has a name that leads out of its folder";
    begin = end + 1;
  }
  return "";
}

/// Reads an archive from its first byte on.
class TarLister {
 public:
  TarLister(std::string_view archive, const std::string& path) : archive_(archive), path_(path) {}

  std::vector<TarMember> list() {
    for (std::string_view header = next_header(); !is_zero(header); header = next_header()) {
      read_entry(header);
    }
    check_end();
    if (members_.empty()) refuse("the archive holds no files");
    return std::move(members_);
  }

 private:
  /// Name and size that pax or GNU headers give to the next member.
  struct Extension {
    std::optional<std::string_view> name;
    std::optional<int64_t> size;
  };

  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError(fmt::format("{}: byte {}: {}", path_, start_, what), kRemakeArchive);
  }

  [[noreturn]] void refuse_member(std::string_view name, const std::string& what) const {
    refuse(fmt::format("member {} {}", quoted_excerpt(name), what));
  }

  std::string_view next_header() {
    start_ = at_;
    if (archive_.size() - at_ < kBlock) {
      refuse(
          fmt::format("cut short: the file has {} bytes and no end of an archive, two blocks of "
                      "zeros",
                      archive_.size()));
    }
    at_ += kBlock;
    return archive_.substr(start_, kBlock);
  }

  /// The bytes behind a header. `name`: of the member, for messages.
  std::string_view take_bytes(int64_t size, std::string_view name) {
    const size_t left = archive_.size() - at_;
    if (static_cast<uint64_t>(size) > left) {
      refuse_member(name, fmt::format("has {} bytes, and the file ends {} bytes behind its header",
                                      size, left));
    }
    const auto count = static_cast<size_t>(size);
    const std::string_view bytes = archive_.substr(at_, count);
    at_ += std::min(left, (count + kBlock - 1) / kBlock * kBlock);
    return bytes;
  }

  void read_entry(std::string_view header) {
    if (number_in(kChecksum.of(header)) != checksum_of(header)) {
      refuse("no header of a tar archive: its checksum is wrong");
    }
    const char type = header[kType];
    const bool is_extension = type == 'x' || type == 'g' || type == 'L';
    const std::string own_name = name_of(header);
    const std::optional<int64_t> own_size = number_in(kSize.of(header));
    if (!own_size) refuse_member(own_name, "has a size field that is not a number");
    if (!is_extension) {
      read_member(type, extension_.name.value_or(own_name), extension_.size.value_or(*own_size));
      extension_ = {};
      return;
    }
    const std::string_view bytes = take_bytes(*own_size, own_name);
    if (type == 'x') read_pax(bytes);
    if (type == 'L') extension_.name = bytes.substr(0, bytes.find('\0'));
  }

  /// The name in the header itself. Only POSIX has a prefix: GNU keeps other things there.
  static std::string name_of(std::string_view header) {
    std::string name(kName.text_of(header));
    const std::string_view prefix = kPrefix.text_of(header);
    if (kMagic.of(header) != std::string_view("ustar\0", 6) || prefix.empty()) return name;
    return fmt::format("{}/{}", prefix, name);
  }

  void read_member(char type, std::string_view name, int64_t size) {
    std::string problem = type_problem(type);
    if (problem.empty()) problem = name_problem(name);
    if (!problem.empty()) refuse_member(name, problem);
    const auto offset = static_cast<int64_t>(at_);
    take_bytes(size, name);
    const bool is_folder = type == '5' || name.ends_with('/');
    if (!is_folder) members_.push_back({std::string(name), offset, size});
  }

  /// Records "LENGTH KEY=VALUE\n", the length counting all of it.
  void read_pax(std::string_view records) {
    while (!records.empty()) {
      size_t length = 0;
      const auto [stop, error] =
          std::from_chars(records.data(), records.data() + records.size(), length);
      const auto digits = static_cast<size_t>(stop - records.data());
      const bool is_record = error == std::errc() && length <= records.size() &&
                             length >= digits + 2 && records[digits] == ' ' &&
                             records[length - 1] == '\n';
      if (!is_record) refuse("a damaged record in an extended header");
      const std::string_view record = records.substr(digits + 1, length - digits - 2);
      const size_t equals = record.find('=');
      if (equals == record.npos) refuse("an extended header with a record without '='");
      take_record(record.substr(0, equals), record.substr(equals + 1));
      records.remove_prefix(length);
    }
  }

  void take_record(std::string_view key, std::string_view value) {
    if (key.starts_with("GNU.sparse.")) refuse("an extended header of a sparse file");
    if (key == "path") extension_.name = value;
    if (key != "size") return;
    extension_.size = parse_digits(value);
    if (!extension_.size) refuse("an extended header whose size is not a number");
  }

  /// Called behind the first block of zeros.
  void check_end() {
    if (!is_zero(next_header())) refuse("a header behind a single block of zeros");
    if (extension_.name || extension_.size) refuse("an extended header without a member");
    const size_t surplus = archive_.find_first_not_of('\0', at_);
    if (surplus == archive_.npos) return;
    start_ = surplus;
    refuse("bytes behind the end of the archive; archives cannot be joined by cat");
  }

  std::string_view archive_;
  const std::string& path_;
  size_t at_ = 0;     ///< what is to be read next
  size_t start_ = 0;  ///< of the header being read, for messages
  Extension extension_;
  std::vector<TarMember> members_;
};

}  // namespace

std::vector<TarMember> list_tar(std::span<const std::byte> archive, const std::string& path) {
  const std::string_view bytes(reinterpret_cast<const char*>(archive.data()), archive.size());
  return TarLister(bytes, path).list();
}

}  // namespace shoal
