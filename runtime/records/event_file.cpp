#include "runtime/records/event_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/files/crc32c.h"

namespace shoal {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.", kSuffix = ".shoal";
constexpr size_t kSecondDigits = 10;
constexpr size_t kMostRanges = 30;
constexpr size_t kMostWaitingBytes = size_t{64} << 20;

// Fields of TensorFlow's messages Event, SessionLog, Summary.Value and .Image, HistogramProto.
namespace event_field {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace session_log_field {
constexpr int kStatus = 1;
constexpr uint64_t kStart = 1;
}  // namespace session_log_field
namespace value_field {
constexpr int kTag = 1, kSimpleValue = 2, kImage = 4, kHistogram = 5;
}
namespace image_field {
constexpr int kHeight = 1, kWidth = 2, kColorspace = 3, kEncoded = 4;
constexpr uint64_t kRgb = 3;
}  // namespace image_field
namespace histogram_field {
constexpr int kMin = 1, kMax = 2, kCount = 3, kSum = 4, kSquareSum = 5, kLimits = 6, kCounts = 7;
}

enum class WireType : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string little_endian(uint64_t number, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(number >> (8 * i) & 0xff);
  return text;
}

/// A protocol-buffer message in the making.
class Message {
 public:
  Message& varint(int field, uint64_t number) {
    key(field, WireType::kVarint);
    number_text(number);
    return *this;
  }
  Message& real(int field, double number) {
    key(field, WireType::kFixed64);
    bytes_ += little_endian(std::bit_cast<uint64_t>(number), 8);
    return *this;
  }
  Message& real32(int field, float number) {
    key(field, WireType::kFixed32);
    bytes_ += little_endian(std::bit_cast<uint32_t>(number), 4);
    return *this;
  }
  Message& text(int field, std::string_view text) {
    key(field, WireType::kBytes);
    number_text(text.size());
    bytes_ += text;
    return *this;
  }
  Message& reals(int field, const std::vector<double>& numbers) {
    std::string packed;
    for (const double number : numbers) packed += little_endian(std::bit_cast<uint64_t>(number), 8);
    return text(field, packed);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, WireType type) {
    number_text(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type));
  }
  void number_text(uint64_t number) {
    for (; number >= 0x80; number >>= 7) bytes_ += static_cast<char>((number & 0x7f) | 0x80);
    bytes_ += static_cast<char>(number);
  }

  std::string bytes_;
};

std::string summary_value(const Message& value) {
  constexpr int kValue = 1;
  return Message().text(kValue, value.bytes()).bytes();
}

/// Counts of values in ranges, which are given by their upper ends.
struct Ranges {
  std::vector<double> limits, counts;
};

Ranges count_in_ranges(const std::vector<double>& values, double least, double most) {
  const double width = (most - least) / static_cast<double>(kMostRanges);
  // Also of neighbours so close that 30 ranges between them would be empty.
  if (!(least + width > least)) return {{most}, {static_cast<double>(values.size())}};
  Ranges ranges;
  for (size_t i = 1; i < kMostRanges; ++i) {
    ranges.limits.push_back(least + width * static_cast<double>(i));
  }
  ranges.limits.push_back(most);
  ranges.counts.assign(kMostRanges, 0.0);
  for (const double value : values) {
    const auto limit = std::ranges::lower_bound(ranges.limits, value);
    ++ranges.counts[static_cast<size_t>(limit - ranges.limits.begin())];
  }
  return ranges;
}

/// Masked CRC, as in TFRecords: a checksum of data that contain their own checksum would be weak.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

std::string record_of(const std::string& message) {
  const std::string length = little_endian(message.size(), 8);
  return length + little_endian(masked_crc(length), 4) + message +
         little_endian(masked_crc(message), 4);
}

Message new_event() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return Message().real(event_field::kWallTime, std::chrono::duration<double>(now).count());
}

/// Names hold the second at which a file was begun, or a later one: a second start within it, or
/// on a machine whose clock is behind, still comes after the files that are there.
std::string new_path(const std::string& folder, FileSystem& files) {
  namespace fs = std::filesystem;
  std::error_code failed;
  if (!fs::exists(folder, failed)) make_directory(files, folder);
  int64_t second = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  fs::directory_iterator at(folder, failed);
  for (; !failed && at != fs::directory_iterator(); at.increment(failed)) {
    const std::string name = at->path().filename().string();
    if (!is_event_file(name)) continue;
    second = std::max(second, parse_digits(name.substr(kPrefix.size(), kSecondDigits)).value() + 1);
  }
  if (failed) throw StorageError(fmt::format("read folder '{}': {}", folder, failed.message()));
  return fmt::format("{}/{}{:010}{}", folder, kPrefix, second, kSuffix);
}

}  // namespace

EventSummary& EventSummary::add_scalar(const std::string& tag, double number) {
  bytes_ += summary_value(Message()
                              .text(value_field::kTag, tag)
                              .real32(value_field::kSimpleValue, static_cast<float>(number)));
  return *this;
}

EventSummary& EventSummary::add_histogram(const std::string& tag,
                                          const std::vector<double>& values) {
  if (values.empty()) return *this;
  const auto [least, most] = std::ranges::minmax(values);
  const Ranges ranges = count_in_ranges(values, least, most);
  double sum = 0.0, square_sum = 0.0;
  for (const double number : values) {
    sum += number;
    square_sum += number * number;
  }
  const Message histogram = Message()
                                .real(histogram_field::kMin, least)
                                .real(histogram_field::kMax, most)
                                .real(histogram_field::kCount, static_cast<double>(values.size()))
                                .real(histogram_field::kSum, sum)
                                .real(histogram_field::kSquareSum, square_sum)
                                .reals(histogram_field::kLimits, ranges.limits)
                                .reals(histogram_field::kCounts, ranges.counts);
  bytes_ += summary_value(
      Message().text(value_field::kTag, tag).text(value_field::kHistogram, histogram.bytes()));
  return *this;
}

EventSummary& EventSummary::add_image(const std::string& tag, const Image& image) {
  const Message picture = Message()
                              .varint(image_field::kHeight, static_cast<uint64_t>(image.height))
                              .varint(image_field::kWidth, static_cast<uint64_t>(image.width))
                              .varint(image_field::kColorspace, image_field::kRgb)
                              .text(image_field::kEncoded, image.png);
  bytes_ += summary_value(
      Message().text(value_field::kTag, tag).text(value_field::kImage, picture.bytes()));
  return *this;
}

EventFile::EventFile(const std::string& folder, int64_t first_step, SharedFileSystem files)
    : GrowingFile(new_path(folder, *files), "event", files, kMostWaitingBytes) {
  append(record_of(new_event().text(event_field::kFileVersion, "brain.Event:2").bytes()));
  const Message start = Message().varint(session_log_field::kStatus, session_log_field::kStart);
  append(record_of(new_event()
                       .varint(event_field::kStep, static_cast<uint64_t>(first_step))
                       .text(event_field::kSessionLog, start.bytes())
                       .bytes()));
}

void EventFile::write(const StepEvent& event) {
  append(record_of(new_event()
                       .varint(event_field::kStep, static_cast<uint64_t>(event.step))
                       .text(event_field::kSummary, event.summary.bytes())
                       .bytes()));
}

bool is_event_file(const std::string& name) {
  const size_t size = kPrefix.size() + kSecondDigits + kSuffix.size();
  if (name.size() != size || !name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return false;
  const std::string number = name.substr(kPrefix.size(), kSecondDigits);
  return number.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace shoal
