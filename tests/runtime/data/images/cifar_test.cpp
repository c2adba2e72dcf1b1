#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/images/cifar_records.h"
#include "runtime/data/loader/loader.h"
#include "tests/runtime/data/source_of.h"
#include "tests/runtime/data/training_mistakes.h"
#include "tests/support/config_error.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<DataSource> cifar(const std::vector<std::string>& changes) {
  return testing::source_of("{source: cifar}", changes);
}

std::vector<std::string> problems_of(const std::vector<std::string>& changes) {
  return testing::mistakes_of([&] { cifar(changes); });
}

class Cifar : public ::testing::Test {
 protected:
  Cifar() {
    std::string pattern = (fs::temp_directory_path() / "cifar.XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    set("path=" + folder_.string());
  }
  ~Cifar() override { fs::remove_all(folder_); }

  /// `count` records with labels first, first + 1, ... and pixels equal to the
  /// label.
  void write(const std::string& name, int count, int first, int64_t classes = 10) const {
    std::ofstream file(folder_ / name, std::ios::binary);
    for (int i = 0; i < count; ++i) {
      if (classes == 100) file.put(3);
      const auto label = static_cast<char>((first + i) % classes);
      file.put(label) << std::string(static_cast<size_t>(CifarLayout::kImageBytes), label);
    }
  }

  /// Sets a key of the source.
  void set(const std::string& change) { changes_.push_back(change); }
  std::shared_ptr<DataSource> source() const { return cifar(changes_); }

  fs::path folder_;
  std::vector<std::string> changes_;
};

TEST_F(Cifar, NamesItsClassesWhereTheFolderDoes) {
  EXPECT_TRUE(source()->class_names().empty());
  std::ofstream(folder_ / "batches.meta.txt") << "a\r\nb\n\nc d\ne\nf\ng\nh\ni\nj\nk\n\n";
  EXPECT_THAT(source()->class_names(),
              ElementsAre("a", "b", "c d", "e", "f", "g", "h", "i", "j", "k"));
  set("classes=100");
  EXPECT_TRUE(source()->class_names().empty());
  std::ofstream names(folder_ / "fine_label_names.txt");
  for (int i = 0; i < 100; ++i) names << "class " << i << "\n";
  names.close();
  EXPECT_EQ(source()->class_names().at(99), "class 99");
  std::ofstream(folder_ / "fine_label_names.txt") << "too\nfew\n";
  EXPECT_TRUE(source()->class_names().empty());
}

TEST_F(Cifar, IsOfAHundredClassesWhereTheFolderNamesThem) {
  EXPECT_EQ(source()->shape().classes, 10);
  std::ofstream names(folder_ / "fine_label_names.txt");
  for (int i = 0; i < 100; ++i) names << "class " << i << "\n";
  names.close();
  EXPECT_EQ(source()->shape().classes, 100);
  EXPECT_EQ(source()->class_names().at(99), "class 99");
  set("classes=10");
  EXPECT_EQ(source()->shape().classes, 10);
}

// As class folders are.
TEST_F(Cifar, NamesOfOtherClassesThanTheRecipesAreRefused) {
  write("test_batch.bin", 3, 0);
  std::ofstream names(folder_ / "fine_label_names.txt");
  for (int i = 0; i < 100; ++i) names << "class " << i << "\n";
  names.close();
  EXPECT_THAT(testing::training_mistakes_of(*source()), ElementsAre());
  set("classes=10");
  EXPECT_THAT(testing::training_mistakes_of(*source()),
              ElementsAre(HasSubstr("classes: " + (folder_ / "fine_label_names.txt").string() +
                                    ": 100 class names, and data.classes is 10")));
  EXPECT_THROW(source()->open(Split::kValid), DataError);
  std::ofstream(folder_ / "batches.meta.txt") << "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n";
  EXPECT_THAT(testing::training_mistakes_of(*source()), ElementsAre());
  EXPECT_EQ(source()->open(Split::kValid)->size(), 3);
  std::ofstream(folder_ / "batches.meta.txt") << "too\nfew\n";
  EXPECT_THAT(testing::training_mistakes_of(*source()),
              ElementsAre(HasSubstr("batches.meta.txt: 2 class names, and data.classes is 10")));
}

TEST_F(Cifar, IsLabelledByName) {
  write("test_batch.bin", 3, 0);
  std::ofstream(folder_ / "batches.meta.txt") << "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n";
  set("class_names=[j, i, h, g, f, e, d, c, b, a]");
  const auto records = source()->open(Split::kValid);
  EXPECT_EQ(records->read(1, 0).label, 8) << "b";
  EXPECT_THAT(records->notes(), ElementsAre(HasSubstr("in another order")));
  fs::remove(folder_ / "batches.meta.txt");
  EXPECT_EQ(source()->open(Split::kValid)->read(1, 0).label, 1);
  EXPECT_THAT(source()->open(Split::kValid)->warnings(),
              ElementsAre(HasSubstr("names no classes")));
}

TEST_F(Cifar, JoinsTheFilesInTheOrderGiven) {
  write("b.bin", 3, 0);
  write("a.bin", 2, 5);
  set("train.files=[b.bin, a.bin]");
  const auto records = source()->open(Split::kTrain);
  ASSERT_EQ(records->size(), 5);
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 5; ++i) {
    const Sample sample = records->read(i, 0);
    labels.push_back(sample.label);
    EXPECT_EQ(sample.shape, (ImageShape{3, 32, 32}));
    EXPECT_EQ(sample.pixel_CHW, std::vector<uint8_t>(3072, static_cast<uint8_t>(sample.label)));
  }
  EXPECT_THAT(labels, ElementsAre(0, 1, 2, 5, 6));
}

TEST_F(Cifar, TakesTheFirstRecordsWhereToldTo) {
  write("a.bin", 3, 0);
  write("b.bin", 3, 5);
  set("train.files=[a.bin, b.bin]");
  set("train.samples=5");
  const auto records = source()->open(Split::kTrain);
  ASSERT_EQ(records->size(), 5);
  EXPECT_EQ(records->read(4, 0).label, 6);
  set("train.samples=7");
  EXPECT_THROW(source()->open(Split::kTrain), DataError);
}

TEST_F(Cifar, OpensOnlyTheSplitAskedFor) {
  write("v.bin", 2, 0);
  set("train.files=[missing.bin]");
  set("valid.files=[v.bin]");
  EXPECT_EQ(source()->open(Split::kValid)->size(), 2);
  EXPECT_THROW(source()->open(Split::kTrain), DataError);
}

TEST_F(Cifar, OpensTheOfficialFilesByDefault) {
  for (int batch = 1; batch <= 5; ++batch) {
    write("data_batch_" + std::to_string(batch) + ".bin", batch, 0);
  }
  write("test_batch.bin", 7, 0);
  EXPECT_EQ(source()->open(Split::kTrain)->size(), 15);
  EXPECT_EQ(source()->open(Split::kValid)->size(), 7);
  set("classes=100");
  write("train.bin", 4, 90, 100);
  write("test.bin", 2, 50, 100);
  EXPECT_EQ(source()->open(Split::kTrain)->size(), 4);
  EXPECT_EQ(source()->open(Split::kValid)->read(1, 0).label, 51);
}

TEST_F(Cifar, TellsShapeAndClassesWithoutOpeningAnything) {
  set("path=" + (folder_ / "nowhere").string());
  set("classes=100");
  const auto images = source();
  EXPECT_EQ(images->shape().image, (ImageShape{3, 32, 32}));
  EXPECT_EQ(images->shape().classes, 100);
  EXPECT_EQ(images->image_transform()->stats.mean.size(), 3u);
}

TEST_F(Cifar, GivesViewsWithTransformsOfTheirOwn) {
  std::ofstream file(folder_ / "colours.bin", std::ios::binary);
  for (int64_t i = 0; i < 8 * CifarLayout{10}.record_bytes(); ++i) {
    const bool is_label = i % CifarLayout{10}.record_bytes() == 0;
    file.put(static_cast<char>(is_label ? 3 : i * i * 7 % 251));
  }
  file.close();
  set("train.files=[colours.bin]");
  set("augment={crop_padding: 4, flip: true, transforms: [{name: grey, probability: {views: [1.0, "
      "0.0]}}, {name: blur}]}");
  set("normalise={mean: [0, 0, 0], std: [1, 1, 1]}");
  const auto images = source();
  LoaderSettings settings{
      .cut = {8, 1, 1}, .shape = images->shape(), .images = images->image_transform(), .views = 2};
  const auto records = images->open(Split::kTrain);
  const torch::Tensor image_bVCHW = TrainLoader(*records, settings).next().image_bVCHW;
  ASSERT_EQ(image_bVCHW.sizes(), (at::IntArrayRef{8, 2, 3, 32, 32}));
  const auto channel = [&](int64_t view, int64_t c) {
    return image_bVCHW.select(1, view).select(1, c);
  };
  EXPECT_TRUE(at::equal(channel(0, 0), channel(0, 1)));
  EXPECT_TRUE(at::equal(channel(0, 0), channel(0, 2)));
  EXPECT_FALSE(at::equal(channel(1, 0), channel(1, 2)));
}

TEST_F(Cifar, CropsAndResizesWhereToldTo) {
  write("a.bin", 4, 1);
  set("train.files=[a.bin]");
  set("valid.files=[a.bin]");
  EXPECT_EQ(source()->image_transform()->train_crop, nullptr) << "taken as they are";
  set("train.crop={name: random_resized}");
  EXPECT_NE(source()->image_transform()->train_crop, nullptr);
  EXPECT_EQ(source()->image_transform()->valid_crop, nullptr);
  set("image_size=48");
  set("normalise={mean: [0, 0, 0], std: [1, 1, 1]}");
  const auto images = source();
  EXPECT_EQ(images->shape().image, (ImageShape{3, 48, 48}));
  LoaderSettings settings{
      .cut = {4, 1, 1}, .shape = images->shape(), .images = images->image_transform(), .views = 2};
  const auto records = images->open(Split::kTrain);
  const Batch batch = TrainLoader(*records, settings).next();
  ASSERT_EQ(batch.image_bVCHW.sizes(), (at::IntArrayRef{4, 2, 3, 48, 48}));
  const auto valid = images->open(Split::kValid);
  const torch::Tensor image = EvalLoader(*valid, settings).next()->image_bCHW();
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(at::equal(image[i], torch::full({3, 48, 48}, (i + 1) / 255.0))) << i;
  }
}

TEST_F(Cifar, NamesTheMissingFile) {
  write("data_batch_1.bin", 1, 0);
  try {
    source()->open(Split::kTrain);
    FAIL() << "opened";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no 'data_batch_2.bin' in"));
  }
}

TEST_F(Cifar, ReplacesCorruptRecordsByTheNextGoodOnesWhenTold) {
  write("a.bin", 20000, 0);
  const auto damage = [&](int64_t record) {
    std::fstream file(folder_ / "a.bin", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(record * CifarLayout{10}.record_bytes()).put(static_cast<char>(200));
  };
  damage(19998);
  damage(19999);
  set("train.files=[a.bin]");
  EXPECT_THROW(source()->open(Split::kTrain), DataError);

  set("on_corrupt=skip");
  const auto records = source()->open(Split::kTrain);
  EXPECT_EQ(records->size(), 20000);
  EXPECT_THAT(records->substituted(), ElementsAre(19998, 19999));
  EXPECT_EQ(records->read(19997, 0).label, 7);
  EXPECT_EQ(records->read(19998, 0).label, 0);  // record 0, after the end
  EXPECT_EQ(records->read(19999, 0).label, 0);

  damage(5);
  try {
    source()->open(Split::kTrain);
    FAIL() << "accepted more than 1e-4 of corrupt records";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a.bin: record 5 (byte 15365): label 200"));
    EXPECT_THAT(error.what(), HasSubstr("3 of 20000 records are corrupt"));
  }
}

TEST(CifarOptions, DefaultToTheArchivesFolder) {
  EXPECT_EQ(cifar({})->files(Split::kValid).back(), "cifar-10-batches-bin/test_batch.bin");
  EXPECT_EQ(cifar({"classes=100"})->files(Split::kTrain).front(), "cifar-100-binary/train.bin");
}

TEST(CifarOptions, AllowAFileInBothSplitsButForTraining) {
  const auto training_problems = [](const std::vector<std::string>& changes) {
    return testing::training_mistakes_of(*cifar(changes));
  };
  EXPECT_THAT(training_problems({}), ElementsAre());
  EXPECT_THAT(training_problems(
                  {"path=data", "train.files=[a.bin, b.bin]", "valid.files=[c.bin, ./b.bin]"}),
              ElementsAre(HasSubstr("valid.files: data/b.bin is trained on")));
  EXPECT_THAT(training_problems({"path=data", "valid.files=[data_batch_5.bin]"}),
              ElementsAre(HasSubstr("set train.files without it")));
}

TEST(CifarOptions, RefuseAFileNamedTwice) {
  EXPECT_THAT(
      problems_of({"train.files=[a.bin, a.bin]", "valid.files=[v.bin, x/../v.bin]"}),
      ElementsAre(
          HasSubstr("train.files=[a.bin, a.bin]: cifar-10-batches-bin/a.bin is named twice"),
          HasSubstr("valid.files=[v.bin, x/../v.bin]: cifar-10-batches-bin/v.bin is named twice")));
}

TEST(CifarOptions, RefuseOtherClassCounts) {
  EXPECT_THAT(problems_of({"classes=20"}), ElementsAre(HasSubstr("classes=20: must be 10 or 100")));
}

TEST(CifarOptions, AreRegisteredAsCifar) { EXPECT_EQ(cifar({})->shape().classes, 10); }

/// Runs where CIFAR10 names the folder of the real files.
TEST(CifarData, HoldsTheRealImages) {
  const char* folder = std::getenv("CIFAR10");
  ASSERT_NE(folder, nullptr) << "set CIFAR10 to the folder of the binary version";
  const auto source = cifar({std::string("path=") + folder, "valid.files=[data_batch_5.bin]",
                             "train.files=[data_batch_1.bin]"});
  const auto set = source->open(Split::kTrain);
  ASSERT_EQ(set->size(), 10000);
  // Mean over one batch is near that over all.
  std::vector<double> sum(3, 0.0);
  std::vector<int64_t> of_class(10, 0);
  for (int64_t i = 0; i < set->size(); ++i) {
    const Sample sample = set->read(i, 0);
    ++of_class[static_cast<size_t>(sample.label)];
    for (size_t j = 0; j < sample.pixel_CHW.size(); ++j) sum[j / 1024] += sample.pixel_CHW[j];
  }
  for (size_t channel = 0; channel < 3; ++channel) {
    EXPECT_NEAR(sum[channel] / (255.0 * 1024 * 10000),
                source->image_transform()->stats.mean[channel], 5e-3);
  }
  for (const int64_t count : of_class) EXPECT_NEAR(static_cast<double>(count), 1000.0, 100.0);
  EXPECT_EQ(source->open(Split::kValid)->size(), 10000);
}

}  // namespace
}  // namespace shoal
