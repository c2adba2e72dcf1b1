#include "runtime/data/images/cifar_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr CifarLayout kTen{10};
constexpr CifarLayout kHundred{100};

/// Records whose pixels are (record + position) mod 251.
std::vector<uint8_t> make_records(CifarLayout layout, const std::vector<uint8_t>& labels) {
  std::vector<uint8_t> bytes;
  for (size_t record = 0; record < labels.size(); ++record) {
    if (layout.num_classes == 100) bytes.push_back(static_cast<uint8_t>(record % 20));
    bytes.push_back(labels[record]);
    for (size_t i = 0; i < CifarLayout::kImageBytes; ++i) {
      bytes.push_back(static_cast<uint8_t>((record + i) % 251));
    }
  }
  return bytes;
}

class CifarRecords : public ::testing::Test {
 protected:
  CifarRecords() {
    std::string pattern = (fs::temp_directory_path() / "cifar_records.XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~CifarRecords() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::vector<uint8_t>& bytes) const {
    const fs::path path = folder_ / name;
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return path.string();
  }

  fs::path folder_;
};

/// The message and hint of the DataError that `call` throws.
template <typename Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const DataError& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    return std::string(error.what()) + " | " + error.hint();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

std::string refusal_of_file(const std::string& path, CifarLayout layout) {
  return refusal([&] { CifarFile(path, layout); });
}

TEST_F(CifarRecords, ReadsLabelAndPixelsOfEachRecord) {
  const CifarFile file(write("a.bin", make_records(kTen, {3, 0, 9})), kTen);
  ASSERT_EQ(file.size(), 3);
  const CifarRecord record = file.read(2);
  EXPECT_EQ(record.label, 9);
  ASSERT_EQ(record.pixel_CHW.size(), 3072u);
  EXPECT_EQ(record.pixel_CHW[0], 2);
  EXPECT_EQ(record.pixel_CHW[3071], (2 + 3071) % 251);
  EXPECT_EQ(file.read(0).label, 3);
}

TEST_F(CifarRecords, TakesTheFineLabelOfCifar100) {
  const CifarFile file(write("a.bin", make_records(kHundred, {99, 42})), kHundred);
  ASSERT_EQ(file.size(), 2);
  EXPECT_EQ(file.read(0).label, 99);
  EXPECT_EQ(file.read(1).label, 42);
  EXPECT_EQ(file.read(1).pixel_CHW[0], 1);
  EXPECT_EQ(file.read(1).pixel_CHW.size(), 3072u);
}

TEST_F(CifarRecords, ReadsMoreRecordsThanOneCheckingBlock) {
  std::vector<uint8_t> labels(600);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<uint8_t>(i % 10);
  const CifarFile file(write("a.bin", make_records(kTen, labels)), kTen);
  ASSERT_EQ(file.size(), 600);
  EXPECT_EQ(file.read(599).label, 9);
}

TEST_F(CifarRecords, RefusesEverySizeThatIsNoPositiveMultiple) {
  const std::vector<uint8_t> whole = make_records(kTen, {1, 2});
  for (const size_t size : {0u, 1u, 3072u, 3074u, 6145u}) {
    const std::string text = refusal_of_file(
        write("cut.bin", {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}), kTen);
    EXPECT_THAT(text, HasSubstr("cut.bin"));
    EXPECT_THAT(text, HasSubstr("positive multiple of 3073 bytes"));
    if (size == 6145u) {
      EXPECT_THAT(text, HasSubstr("record 1 has only 3072 of its bytes"));
    }
  }
  EXPECT_THAT(refusal_of_file(write("cut.bin", whole), kHundred),
              HasSubstr("positive multiple of 3074"));
}

TEST_F(CifarRecords, NamesTheOtherDatasetWhenTheSizeFitsIt) {
  const std::string hundred = write("train.bin", make_records(kHundred, {1, 2, 3}));
  EXPECT_THAT(refusal_of_file(hundred, kTen), HasSubstr("set data.classes to 100"));
  const std::string ten = write("data_batch_1.bin", make_records(kTen, {1, 2, 3}));
  EXPECT_THAT(refusal_of_file(ten, kHundred), HasSubstr("set data.classes to 10"));
}

TEST_F(CifarRecords, NamesFileRecordAndByteOfAWrongLabel) {
  std::vector<uint8_t> labels(300, 0);
  labels[297] = 10;
  const std::string text = refusal_of_file(write("a.bin", make_records(kTen, labels)), kTen);
  EXPECT_THAT(text, HasSubstr("a.bin: record 297 (byte 912681): label 10, must be below 10"));
  EXPECT_THAT(text, HasSubstr("fetch it again"));
}

TEST_F(CifarRecords, ChecksCoarseAndFineLabels) {
  std::vector<uint8_t> bytes = make_records(kHundred, {5, 100});
  EXPECT_THAT(refusal_of_file(write("a.bin", bytes), kHundred),
              HasSubstr("record 1 (byte 3075): fine label 100, must be below 100"));
  bytes = make_records(kHundred, {5, 6});
  bytes[3074] = 20;
  EXPECT_THAT(refusal_of_file(write("a.bin", bytes), kHundred),
              HasSubstr("record 1 (byte 3074): coarse label 20, must be below 20"));
}

TEST_F(CifarRecords, ToleratesAsManyBadLabelsAsAllowed) {
  std::vector<uint8_t> labels(600, 0);
  for (const size_t record : {3u, 300u, 599u}) labels[record] = 11;
  const std::string path = write("a.bin", make_records(kTen, labels));
  const CifarFile file(path, kTen, 3);
  ASSERT_EQ(file.bad_records().size(), 3u);
  EXPECT_EQ(file.bad_records()[0].index, 3);
  EXPECT_EQ(file.bad_records()[1].index, 300);
  EXPECT_EQ(file.bad_records()[2].index, 599);
  EXPECT_THROW(file.read(300), DataError);
  EXPECT_THAT(refusal([&] { CifarFile(path, kTen, 2); }), HasSubstr("record 599"));
}

TEST_F(CifarRecords, ListsTheFolderWhenTheFileIsMissing) {
  write("data_batch_1.bin", {});
  write("test_batch.bin", {});
  const std::string text = refusal_of_file((folder_ / "data_batch_9.bin").string(), kTen);
  EXPECT_THAT(text, HasSubstr("no 'data_batch_9.bin' in"));
  EXPECT_THAT(text, HasSubstr("which holds data_batch_1.bin, test_batch.bin"));
  EXPECT_THAT(text, HasSubstr("data.path must be the folder"));
}

TEST_F(CifarRecords, ListsTheNearestFolderWhenTheFolderIsMissing) {
  fs::create_directory(folder_ / "cifar-10-batches-bin");
  const std::string text = refusal_of_file((folder_ / "cifar" / "deeper" / "a.bin").string(), kTen);
  EXPECT_THAT(text, HasSubstr("no 'cifar' in"));
  EXPECT_THAT(text, HasSubstr("which holds cifar-10-batches-bin"));
}

TEST_F(CifarRecords, ShortensALongFolderList) {
  for (int i = 10; i < 40; ++i) write("file_" + std::to_string(i), {});
  const std::string text = refusal_of_file((folder_ / "a.bin").string(), kTen);
  EXPECT_THAT(text, HasSubstr("which holds 30 others"));
  EXPECT_EQ(text.find("file_39"), std::string::npos);
}

TEST_F(CifarRecords, SaysWhenTheFolderIsEmpty) {
  EXPECT_THAT(refusal_of_file((folder_ / "a.bin").string(), kTen), HasSubstr("which is empty"));
}

TEST_F(CifarRecords, NamesALinkThatLeadsNowhereAndItsTarget) {
  const std::string file = (folder_ / "a.bin").string(), parent = (folder_ / "cifar").string();
  fs::create_symlink("gone.bin", file);
  EXPECT_THAT(refusal_of_file(file, kTen),
              HasSubstr("'" + file + "' is a link to 'gone.bin' and leads nowhere | put the data"));
  fs::create_symlink("/gone/cifar", parent);
  EXPECT_THAT(refusal_of_file(parent + "/a.bin", kTen),
              HasSubstr(parent + "/a.bin: '" + parent + "' is a link to '/gone/cifar' and leads"));
}

TEST_F(CifarRecords, RefusesFoldersPipesAndFilesUsedAsFolders) {
  EXPECT_THAT(refusal_of_file(folder_.string(), kTen), HasSubstr("is not a regular file"));
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(refusal_of_file(pipe, kTen), HasSubstr("is not a regular file"));
  const std::string file = write("plain", {1});
  EXPECT_THAT(refusal_of_file(file + "/a.bin", kTen), HasSubstr("no 'a.bin' in"));
}

TEST_F(CifarRecords, NoticesAFileThatShrinksOrChangesWhileOpen) {
  const std::string path = write("a.bin", make_records(kTen, {1, 2, 3}));
  const CifarFile file(path, kTen);
  std::vector<uint8_t> changed = make_records(kTen, {1, 77, 3});
  changed.resize(2 * 3073);
  write("a.bin", changed);
  EXPECT_EQ(file.read(0).label, 1);
  EXPECT_THAT(refusal([&] { file.read(1); }), HasSubstr("record 1 (byte 3073): label 77"));
  EXPECT_THAT(refusal([&] { file.read(2); }),
              HasSubstr("a.bin: record 2: the file became shorter"));
}

TEST_F(CifarRecords, RefusesAnIndexOutsideTheFile) {
  const CifarFile file(write("a.bin", make_records(kTen, {1})), kTen);
  EXPECT_THAT(refusal([&] { file.read(1); }), HasSubstr("record 1 of 1"));
  EXPECT_THAT(refusal([&] { file.read(-1); }), HasSubstr("record -1 of 1"));
}

}  // namespace
}  // namespace shoal
