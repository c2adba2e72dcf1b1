#include "runtime/records/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "runtime/base/error.h"
#include "runtime/files/crc32c.h"
#include "tests/support/failing_file_system.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::FailingFileSystem;
using ::testing::HasSubstr;

uint64_t number_at(std::string_view bytes, size_t place, size_t size) {
  uint64_t number = 0;
  for (size_t i = size; i > 0; --i) {
    number = number << 8 | static_cast<uint8_t>(bytes.at(place + i - 1));
  }
  return number;
}

uint32_t masked(std::string_view bytes) {
  const uint32_t crc = crc32c_portable(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

/// The messages of a file, whose lengths and checksums are checked.
std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> records;
  for (size_t at = 0; at < file.size();) {
    const auto length = static_cast<size_t>(number_at(file, at, 8));
    EXPECT_EQ(number_at(file, at + 8, 4), masked(file.substr(at, 8)));
    records.push_back(file.substr(at + 12, length));
    EXPECT_EQ(number_at(file, at + 12 + length, 4), masked(records.back()));
    at += length + 16;
  }
  return records;
}

/// A field of a message: its number, and its bytes or the bytes of its number.
struct Field {
  int number = 0;
  int wire_type = 0;
  uint64_t value = 0;
  std::string bytes;

  double real() const { return std::bit_cast<double>(value); }
  float real32() const { return std::bit_cast<float>(static_cast<uint32_t>(value)); }
};

uint64_t take_varint(std::string_view& bytes) {
  uint64_t number = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes.at(0));
    bytes.remove_prefix(1);
    number |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return number;
  }
}

std::vector<Field> fields_of(std::string_view message) {
  std::vector<Field> fields;
  while (!message.empty()) {
    const uint64_t key = take_varint(message);
    Field field{static_cast<int>(key >> 3), static_cast<int>(key & 7), 0, ""};
    size_t size = 0;
    if (field.wire_type == 0) field.value = take_varint(message);
    if (field.wire_type == 1) size = 8;
    if (field.wire_type == 5) size = 4;
    if (size > 0) field.value = number_at(message, 0, size);
    if (field.wire_type == 2) size = static_cast<size_t>(take_varint(message));
    field.bytes = message.substr(0, size);
    message.remove_prefix(size);
    fields.push_back(field);
  }
  return fields;
}

const Field& find(const std::vector<Field>& fields, int number) {
  for (const Field& field : fields) {
    if (field.number == number) return field;
  }
  throw std::out_of_range("no field " + std::to_string(number));
}

std::vector<double> reals_of(const Field& packed) {
  std::vector<double> numbers;
  for (size_t at = 0; at < packed.bytes.size(); at += 8) {
    numbers.push_back(std::bit_cast<double>(number_at(packed.bytes, at, 8)));
  }
  return numbers;
}

class EventFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("shoal_events_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string folder() const { return (folder_ / "tb").string(); }
  /// The messages of each file, in the order of their names.
  std::vector<std::vector<std::string>> files() const {
    std::map<std::string, std::vector<std::string>> sorted;
    for (const auto& entry : fs::directory_iterator(folder())) {
      std::ifstream file(entry.path());
      std::stringstream all;
      all << file.rdbuf();
      EXPECT_TRUE(is_event_file(entry.path().filename().string()));
      sorted[entry.path().string()] = records_of(all.str());
    }
    std::vector<std::vector<std::string>> result;
    for (auto& [name, records] : sorted) result.push_back(records);
    return result;
  }

 private:
  fs::path folder_;
};

TEST_F(EventFiles, BeginWithTheirVersionAndTheStepFromWhichOlderFilesAreDropped) {
  const auto now = [] {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration<double>(since).count();
  };
  const double before = now();
  EventFile file(folder(), 300);
  const double after = now();
  const auto records = files().at(0);
  ASSERT_EQ(records.size(), 2u);
  const auto version = fields_of(records[0]);
  ASSERT_EQ(version.size(), 2u);
  EXPECT_EQ(version[0].number, 1);
  EXPECT_GE(version[0].real(), before);
  EXPECT_LE(version[0].real(), after);
  EXPECT_EQ(find(version, 3).bytes, "brain.Event:2");
  const auto start = fields_of(records[1]);
  EXPECT_EQ(find(start, 2).value, 300u);
  const auto session = fields_of(find(start, 7).bytes);
  ASSERT_EQ(session.size(), 1u);
  EXPECT_EQ(session[0].number, 1);
  EXPECT_EQ(session[0].value, 1u);  // SessionLog.START
}

// The first record that TensorFlow writes, at a wall time of 256.5 s: it checks the checksums' mask
// of this test.
TEST_F(EventFiles, BeginAsTensorFlowsDo) {
  using namespace std::string_literals;
  const std::vector<std::string> records =
      records_of("\x18\0\0\0\0\0\0\0\xa3\x7fK\"\t\0\0\0\0\0\x08p@\x1a\rbrain.Event:2\xbc\x98!+"s);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].size(), 24u);
  EXPECT_EQ(find(fields_of(records[0]), 1).real(), 256.5);
  EXPECT_EQ(find(fields_of(records[0]), 3).bytes, "brain.Event:2");
}

TEST_F(EventFiles, HoldTheStepAndEveryNumberOfAnEvent) {
  EventFile file(folder(), 1);
  file.write({1LL << 40, EventSummary().add_scalar("train/loss", 1.0 / 3.0).add_scalar("b", -2.0)});
  const auto event = fields_of(files().at(0).at(2));
  EXPECT_EQ(find(event, 2).value, 1ULL << 40);
  const auto values = fields_of(find(event, 5).bytes);
  ASSERT_EQ(values.size(), 2u);
  const auto loss = fields_of(values[0].bytes), b = fields_of(values[1].bytes);
  EXPECT_EQ(find(loss, 1).bytes, "train/loss");
  EXPECT_EQ(find(loss, 2).wire_type, 5);
  EXPECT_EQ(find(loss, 2).real32(), static_cast<float>(1.0 / 3.0));
  EXPECT_EQ(find(b, 1).bytes, "b");
  EXPECT_EQ(find(b, 2).real32(), -2.0F);
}

std::vector<Field> histogram_of(const std::vector<double>& values) {
  const EventSummary summary = EventSummary().add_histogram("load", values);
  const auto value = fields_of(find(fields_of(summary.bytes()), 1).bytes);
  EXPECT_EQ(find(value, 1).bytes, "load");
  return fields_of(find(value, 5).bytes);
}

TEST_F(EventFiles, CountValuesInRangesFromTheSmallestToTheLargest) {
  const auto histogram = histogram_of({0.0, 0.5, 3.0, 2.95, 3.0});
  EXPECT_EQ(find(histogram, 1).real(), 0.0);
  EXPECT_EQ(find(histogram, 2).real(), 3.0);
  EXPECT_EQ(find(histogram, 3).real(), 5.0);
  EXPECT_EQ(find(histogram, 4).real(), 9.45);
  EXPECT_DOUBLE_EQ(find(histogram, 5).real(), 0.25 + 9.0 + 2.95 * 2.95 + 9.0);
  const std::vector<double> limits = reals_of(find(histogram, 6));
  const std::vector<double> counts = reals_of(find(histogram, 7));
  ASSERT_EQ(limits.size(), 30u);
  ASSERT_EQ(counts.size(), 30u);
  EXPECT_DOUBLE_EQ(limits[0], 0.1);
  EXPECT_EQ(limits[29], 3.0);
  EXPECT_EQ(counts[0], 1.0);
  EXPECT_EQ(counts[4], 1.0);  // (0.4, 0.5]
  EXPECT_EQ(counts[29], 3.0);
}

TEST_F(EventFiles, CountEqualValuesInOneRangeAndNoneInNone) {
  const auto histogram = histogram_of({2.0, 2.0, 2.0});
  EXPECT_THAT(reals_of(find(histogram, 6)), ElementsAre(2.0));
  EXPECT_THAT(reals_of(find(histogram, 7)), ElementsAre(3.0));
  const double next = std::nextafter(2.0, 3.0);
  EXPECT_THAT(reals_of(find(histogram_of({2.0, next}), 7)), ElementsAre(2.0));
  EXPECT_TRUE(EventSummary().add_histogram("load", {}).empty());
}

TEST_F(EventFiles, HoldPictures) {
  const EventSummary summary = EventSummary().add_image("map", {300, 2, "\x89PNG"});
  const auto value = fields_of(find(fields_of(summary.bytes()), 1).bytes);
  EXPECT_EQ(find(value, 1).bytes, "map");
  const auto picture = fields_of(find(value, 4).bytes);
  EXPECT_EQ(find(picture, 1).value, 2u);    // height
  EXPECT_EQ(find(picture, 2).value, 300u);  // width
  EXPECT_EQ(find(picture, 3).value, 3u);    // RGB
  EXPECT_EQ(find(picture, 4).bytes, "\x89PNG");
}

TEST_F(EventFiles, AreReadInTheOrderInWhichTheyWereBegun) {
  for (const int64_t first_step : {1, 5, 3}) EventFile(folder(), first_step);
  std::vector<uint64_t> first_steps;
  for (const auto& records : files()) first_steps.push_back(find(fields_of(records[1]), 2).value);
  EXPECT_THAT(first_steps, ElementsAre(1u, 5u, 3u));
}

TEST_F(EventFiles, AreNotCutByAFullDisk) {
  const auto system = std::make_shared<FailingFileSystem>();
  system->error = ENOSPC;
  EventFile file(folder(), 1, system);
  system->longest_write = 10;
  system->fail_at = system->calls() + 1;  // in the middle of the next record
  system->fail_for_ever = true;
  const auto write = [&file](int64_t step) {
    file.write({step, EventSummary().add_scalar("loss", 1.0)});
  };
  EXPECT_THROW(write(1), StorageError);
  EXPECT_THROW(write(2), StorageError);
  try {
    file.finish();
    ADD_FAILURE() << "events were lost silently";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/tb/events.out.tfevents."));
    EXPECT_THAT(error.what(), HasSubstr("2 events lost"));
  }
  system->fail_at = -1;
  write(3);
  const auto records = files().at(0);
  ASSERT_EQ(records.size(), 5u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(find(fields_of(records[2 + i]), 2).value, i + 1);
}

TEST_F(EventFiles, DropWhatAFullDiskWouldKeepInMemoryForEver) {
  const auto system = std::make_shared<FailingFileSystem>();
  system->error = ENOSPC;
  EventFile file(folder(), 1, system);
  system->fail_at = system->calls();
  system->fail_for_ever = true;
  const std::string png(size_t{24} << 20, 'x');
  for (int64_t step = 1; step <= 4; ++step) {  // of which 64 MiB hold two
    EXPECT_THROW(file.write({step, EventSummary().add_image("map", {1, 1, png})}), StorageError);
  }
  system->fail_at = -1;
  try {
    file.finish();
    ADD_FAILURE() << "events were lost silently";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 events lost"));
  }
  EXPECT_EQ(files().at(0).size(), 4u);
}

TEST_F(EventFiles, RefuseAFolderThatCannotBeRead) {
  std::ofstream(folder()) << "no folder";
  EXPECT_THROW(EventFile(folder(), 1), StorageError);
}

TEST_F(EventFiles, AreKnownByTheirNames) {
  EXPECT_TRUE(is_event_file("events.out.tfevents.1700000000.shoal"));
  for (const char* name :
       {"events.out.tfevents..shoal", "events.out.tfevents.170000000x.shoal",
        "events.out.tfevents.170000000.shoal", "events.out.tfevents.99999999999999999999.shoal",
        "events.out.tfevents.1700000000.host", "metrics.csv"}) {
    EXPECT_FALSE(is_event_file(name)) << name;
  }
}

}  // namespace
}  // namespace shoal
