#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/loader/loader.h"
#include "tests/parsers/image_fixture.h"
#include "tests/runtime/data/source_of.h"
#include "tests/runtime/data/training_mistakes.h"
#include "tests/support/config_error.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSide = 8;

/// Image i is (9 + i) x 14, its red all i; green grows downwards, blue to the right.
std::vector<uint8_t> pixels(int64_t i) {
  std::vector<uint8_t> pixel_HWC;
  for (int64_t y = 0; y < 9 + i; ++y) {
    for (int64_t x = 0; x < 14; ++x) {
      for (const int64_t value : {i, 10 * y, 10 * x}) {
        pixel_HWC.push_back(static_cast<uint8_t>(value));
      }
    }
  }
  return pixel_HWC;
}

class ImageFolder : public ::testing::Test {
 protected:
  ImageFolder() {
    for (int64_t i = 0; i < 6; ++i) {
      const std::string name =
          (i % 2 == 0 ? "train/cat/" : "train/dog/") + std::to_string(i) + ".png";
      std::filesystem::create_directories(std::filesystem::path(scratch_.file(name)).parent_path());
      testing::write_file(scratch_.file(name),
                          testing::png_of(pixels(i), 9 + i, 14, PNG_FORMAT_RGB));
    }
    std::filesystem::create_directories(scratch_.file("val"));
    testing::write_file(scratch_.file("val/a.jpg"),
                        testing::jpeg_of(testing::plain({200, 100, 50}, 20 * 20), {20, 20}));
    set("path=" + scratch_.file(""));
  }

  /// Sets a key of the source.
  void set(const std::string& change) { changes_.push_back(change); }

  std::shared_ptr<DataSource> source() const {
    return testing::source_of(
        "{source: image_folder, image_size: 8, classes: 2, train: {crop: {name: random}}, "
        "normalise: {mean: [0, 0, 0], std: [1, 1, 1]}}",
        changes_);
  }

  std::string refusal(Split split) const {
    try {
      source()->open(split);
    } catch (const DataError& error) {
      return error.what();
    }
    return "taken";
  }

  LoaderSettings settings(int64_t batch) const {
    const auto folder = source();
    LoaderSettings result;
    result.cut = {batch, 1, 1};
    result.seed = 5;
    result.shape = folder->shape();
    result.images = folder->image_transform();
    result.views = 2;
    return result;
  }

  testing::ScratchFolder scratch_;
  std::vector<std::string> changes_;
};

/// A value of [C, H, W] as a byte.
int64_t byte_at(const torch::Tensor& image_CHW, int64_t c, int64_t y, int64_t x) {
  return std::lround(255.0 * image_CHW[c][y][x].item<double>());
}

TEST_F(ImageFolder, NamesItsClassesByTheFoldersThatItTrainsOn) {
  const std::vector<std::string> cat_dog{"cat", "dog"};
  EXPECT_EQ(source()->class_names(), cat_dog);
  for (const char* name : {"val/ant", "val/bee"}) fs::create_directories(scratch_.file(name));
  EXPECT_EQ(source()->class_names(), cat_dog);
  set("train.folder=missing");
  EXPECT_EQ(source()->class_names(), (std::vector<std::string>{"ant", "bee"}));
  set("valid.folder=missing");
  EXPECT_TRUE(source()->class_names().empty());
  set("class_names=[x, y]");
  EXPECT_EQ(source()->class_names(), (std::vector<std::string>{"x", "y"}));
}

TEST_F(ImageFolder, CountsItsClassesUnlessTheRecipeDoes) {
  set("classes=auto");
  EXPECT_EQ(source()->shape().classes, 2);
  EXPECT_FALSE(source()->shape().has_unknown_classes);
  set("train.list=list.txt");
  EXPECT_EQ(source()->shape().classes, 0) << "a list has numbers, whose number is not known";
  set("~train.list");
  set("train.folder=train/cat");
  EXPECT_EQ(source()->shape().classes, 0) << "images without class folders";
  set("class_names=[x, y, z]");
  EXPECT_EQ(source()->shape().classes, 3);
  set("~class_names");
  set("train.folder=missing");
  set("valid.folder=missing");
  EXPECT_TRUE(source()->shape().has_unknown_classes);
  EXPECT_THROW(source()->open(Split::kTrain), DataError);
}

TEST_F(ImageFolder, LabelsByName) {
  set("class_names=[dog, fox, cat]");
  set("classes=auto");
  const auto opened = source()->open(Split::kTrain);
  EXPECT_EQ(opened->read(0, 0).label, 2) << "cat";
  EXPECT_EQ(opened->read(5, 0).label, 0) << "dog";
  EXPECT_THAT(opened->notes(), ElementsAre(HasSubstr("train: its classes are in another order")));
  EXPECT_THAT(opened->warnings(), ElementsAre(HasSubstr("train: has 2 of the 3 classes")));
  set("valid.folder=train");
  EXPECT_THAT(source()->open(Split::kValid)->warnings(), IsEmpty()) << "a note";
  EXPECT_THAT(source()->open(Split::kValid)->notes(), ::testing::SizeIs(2));
  set("class_names=[dogs, cat]");
  EXPECT_THAT(refusal(Split::kTrain), HasSubstr("train: its class 'dog' is not in "
                                                "data.class_names; did you mean 'dogs'?"));
}

TEST_F(ImageFolder, RefusesNamesThatAreNoList) {
  const auto mistakes = [this](const char* names) {
    set(names);
    return testing::mistakes_of([this] { source(); });
  };
  EXPECT_THAT(mistakes("class_names=[cat]"),
              ElementsAre(HasSubstr("1 names, and data.classes is 2")));
  EXPECT_THAT(mistakes("class_names=[cat, cat]"),
              ElementsAre(HasSubstr("'cat' is empty, repeats")));
  EXPECT_THAT(mistakes("class_names=[cat, '']"), ElementsAre(HasSubstr("the text is empty")));
}

TEST_F(ImageFolder, CropsEachViewAtAPlaceOfItsOwn) {
  const auto opened = source()->open(Split::kTrain);
  ASSERT_EQ(opened->size(), 6);
  TrainLoader loader(*opened, settings(6));
  std::set<std::pair<int64_t, int64_t>> corners;
  int64_t unequal_views = 0;
  for (int epoch = 0; epoch < 20; ++epoch) {
    const Batch batch = loader.next();
    std::set<int64_t> images;
    for (int64_t row = 0; row < 6; ++row) {
      for (int64_t view = 0; view < 2; ++view) {
        const torch::Tensor image = batch.image_bVCHW[row][view];
        const int64_t i = byte_at(image, 0, 0, 0);
        images.insert(i);
        EXPECT_EQ(batch.label_b[row].item<int64_t>(), i % 2);
        const int64_t top = byte_at(image, 1, 0, 0), left = byte_at(image, 2, 0, 0);
        EXPECT_EQ(byte_at(image, 1, kSide - 1, 0), top + 10 * (kSide - 1));
        EXPECT_EQ(byte_at(image, 2, 0, kSide - 1), left + 10 * (kSide - 1));
        corners.emplace(top, left);
      }
      unequal_views += at::equal(batch.image_bVCHW[row][0], batch.image_bVCHW[row][1]) ? 0 : 1;
    }
    EXPECT_EQ(images.size(), 6);
  }
  EXPECT_GT(corners.size(), 30);  // of 7 x 7
  EXPECT_GT(unequal_views, 100);  // of 120
}

TEST_F(ImageFolder, GivesTheSameStreamToAnyRanksWorkersAndAfterASeek) {
  const auto opened = source()->open(Split::kTrain);
  const auto stream = [&](int64_t world, int64_t workers, int64_t first) {
    std::vector<torch::Tensor> images;
    std::vector<std::unique_ptr<TrainLoader>> ranks;
    for (int64_t rank = 0; rank < world; ++rank) {
      LoaderSettings mine = settings(4);
      mine.rank = rank;
      mine.world = world;
      mine.workers = workers;
      ranks.push_back(std::make_unique<TrainLoader>(*opened, mine));
      ranks.back()->seek(first);
    }
    for (int64_t step = first / 4; step < 5; ++step) {
      for (const auto& rank : ranks) images.push_back(rank->next().image_bVCHW);
    }
    return at::cat(images);
  };
  const torch::Tensor expected = stream(1, 1, 0);
  EXPECT_TRUE(at::equal(stream(3, 1, 0), expected));
  EXPECT_TRUE(at::equal(stream(2, 3, 0), expected));
  EXPECT_TRUE(at::equal(stream(1, 2, 8), expected.narrow(0, 8, 12)));
  set("augment={crop_padding: 1, flip: true, transforms: [{name: rand_augment}, "
      "{name: blur, probability: {views: [1.0, 0.1]}}, {name: solarise, probability: 0.2}]}");
  const torch::Tensor transformed = stream(1, 1, 0);
  EXPECT_FALSE(at::equal(transformed, expected));
  EXPECT_TRUE(at::equal(stream(3, 2, 0), transformed));
  EXPECT_TRUE(at::equal(stream(1, 3, 8), transformed.narrow(0, 8, 12)));
}

TEST_F(ImageFolder, EvaluatesTheMiddleOfImages) {
  set("classes=none");
  set("valid.crop={name: center, resize: 16}");
  EXPECT_EQ(source()->shape().text(), "images of 3 x 8 x 8");
  const auto images = source()->open(Split::kValid);
  EXPECT_EQ(images->name(0), scratch_.file("val/a.jpg"));
  EvalLoader loader(*images, settings(1));
  const torch::Tensor image = loader.next()->image_bCHW()[0];
  for (int64_t x = 0; x < kSide; ++x) {
    EXPECT_NEAR(byte_at(image, 0, 3, x), 200, 2);
    EXPECT_NEAR(byte_at(image, 2, x, 5), 50, 2);
  }
}

TEST_F(ImageFolder, KnowsItsFilesAgain) {
  const std::string before = source()->open(Split::kTrain)->fingerprint();
  EXPECT_EQ(source()->open(Split::kTrain)->fingerprint(), before);
  EXPECT_THAT(before, HasSubstr("6 images"));
  testing::write_file(scratch_.file("train/dog/1.png"),
                      testing::png_of(pixels(0), 9, 14, PNG_FORMAT_RGB));
  EXPECT_NE(source()->open(Split::kTrain)->fingerprint(), before);
}

TEST_F(ImageFolder, RefusesOverlapOfTrainingAndValidationSplit) {
  const auto mistakes = [&] { return testing::training_mistakes_of(*source()); };
  EXPECT_THAT(mistakes(), IsEmpty());
  for (const char* folder : {"./train/", ".", "train/cat"}) {
    set(std::string("valid.folder=") + folder);
    EXPECT_THAT(mistakes(),
                ElementsAre(HasSubstr("valid.folder: these images are trained on as well")))
        << folder;
  }
  set("valid.folder=" + scratch_.file("train"));  // absolute
  EXPECT_THAT(mistakes(), ::testing::SizeIs(1));
  std::filesystem::create_directory_symlink("train", scratch_.file("link"));
  set("valid.folder=link");
  EXPECT_THAT(mistakes(), ::testing::SizeIs(1));
  set("valid.folder=train2");
  EXPECT_THAT(mistakes(), IsEmpty());
  set("valid.folder=train");
  set("train.list=train.txt");
  EXPECT_THAT(mistakes(), ::testing::SizeIs(1));
  set("valid.list=train.txt");
  EXPECT_THAT(mistakes(), ::testing::SizeIs(1));
  set("valid.list=valid.txt");
  EXPECT_THAT(mistakes(), IsEmpty());
}

TEST_F(ImageFolder, RefusesSplitsOfOtherClasses) {
  for (const char* name : {"other/bird", "other/cat"}) fs::create_directories(scratch_.file(name));
  set("valid.folder=other");
  EXPECT_EQ(refusal(Split::kTrain), "taken");
  EXPECT_THAT(refusal(Split::kValid),
              HasSubstr("other: its class 'bird' is not in data.class_names"));
  set("classes=3");
  EXPECT_THAT(refusal(Split::kTrain), HasSubstr("2 class names, and data.classes is 3"));
  EXPECT_THAT(testing::training_mistakes_of(*source()),
              ElementsAre(HasSubstr("classes: " + scratch_.file("train") + ": 2 class names"),
                          HasSubstr("classes: " + scratch_.file("other") + ": 2 class names")));
  set("class_names=[bird, cat, dog]");
  EXPECT_THAT(testing::training_mistakes_of(*source()), IsEmpty()) << "a class less may be there";
  set("class_names=[bird, cat, fox]");
  EXPECT_THAT(testing::training_mistakes_of(*source()),
              ElementsAre(HasSubstr("train: its class 'dog' is not in data.class_names")));
}

TEST_F(ImageFolder, WarnsOfAClassWhoseNameIsNoText) {
  EXPECT_EQ(source()->class_names().size(), 2u);
  fs::rename(scratch_.file("train/dog"), scratch_.file("train/d\xffg"));
  EXPECT_THAT(source()->class_names(), IsEmpty());
  EXPECT_EQ(source()->shape().classes, 2);
  EXPECT_THAT(source()->open(Split::kTrain)->warnings(),
              ElementsAre(HasSubstr("train: its classes are numbers without names, since 'd?g'")));
  set("classes=none");
  EXPECT_THAT(source()->open(Split::kTrain)->warnings(), IsEmpty()) << "no labels";
}

TEST_F(ImageFolder, NamesTheFileThatCannotBeRead) {
  testing::write_file(scratch_.file("train/dog/1.png"), "no image");
  testing::write_file(scratch_.file("list.txt"), "dog/1.png 0\ngone.png 1\n");
  set("train.list=list.txt");
  const auto opened = source()->open(Split::kTrain);
  const auto refusal = [&](int64_t index) -> std::string {
    try {
      opened->read(index, 0);
    } catch (const DataError& error) {
      return std::string(error.what()) + "; " + error.hint();
    }
    return "taken";
  };
  EXPECT_THAT(refusal(0), AllOf(HasSubstr("dog/1.png: neither a JPEG nor a PNG"),
                                HasSubstr("take the file out")));
  EXPECT_THAT(refusal(1), HasSubstr("no 'gone.png'"));
}

TEST_F(ImageFolder, ReplacesACorruptImageByTheNextWhenTold) {
  testing::write_file(scratch_.file("train/dog/5.png"), "no image");
  testing::write_file(scratch_.file("list.txt"), "dog/5.png 1\ndog/3.png 1\ngone.png 1\n");
  set("on_corrupt=skip");
  const auto opened = source()->open(Split::kTrain);
  EXPECT_EQ(opened->read(5, 0).shape.height, 9) << "image 0, of the other class, behind the last";
  EXPECT_EQ(opened->read(5, 0).label, 0);
  EXPECT_THAT(opened->substituted(), ElementsAre(5));
  set("train.list=list.txt");
  const auto listed = source()->open(Split::kTrain);
  EXPECT_EQ(listed->read(0, 0).shape.height, 12);
  EXPECT_THROW(listed->read(2, 0), DataError) << "a file that is missing is no corrupt image";
}

TEST_F(ImageFolder, DecodesAtAReducedSizeWhenTold) {
  set("classes=none");
  const auto shape_of = [&] { return source()->open(Split::kValid)->read(0, 0).shape; };
  EXPECT_EQ(shape_of(), (ImageShape{3, 20, 20}));
  set("decode_side=10");
  EXPECT_EQ(shape_of(), (ImageShape{3, 10, 10}));
  set("decode_side=7");
  EXPECT_THAT(testing::mistakes_of([this] { source(); }),
              ElementsAre(HasSubstr("decode_side=7: 7 is below image_size, 8; raise it")));
}

TEST_F(ImageFolder, RefusesACropSmallerThanImages) {
  set("valid.crop={name: center, resize: 7}");
  EXPECT_THROW(source()->image_transform(), ConfigError);
}

/// Runs where IMAGENET_SAMPLE names a folder of class folders with photographs.
TEST(ImageFolderImageNetData, DecodesEveryPhotograph) {
  const char* folder = std::getenv("IMAGENET_SAMPLE");
  ASSERT_NE(folder, nullptr) << "IMAGENET_SAMPLE names a folder of class folders with photographs";
  const auto source = testing::source_of("{source: image_folder}",
                                         {std::string("path=") + folder, "valid.folder=."});
  const auto set = source->open(Split::kValid);
  EXPECT_GE(set->size(), 90);
  LoaderSettings settings;
  settings.cut = {16, 1, 1};
  settings.shape = source->shape();
  settings.images = source->image_transform();
  EvalLoader loader(*set, settings);
  int64_t images = 0;
  while (const std::optional<Batch> batch = loader.next()) {
    const torch::Tensor image = batch->image_bCHW();
    images += image.size(0);
    EXPECT_TRUE((image.flatten(1).std(1) > 0.05).all().item<bool>());  // no plain picture
  }
  EXPECT_EQ(images, set->size());
}

}  // namespace
}  // namespace shoal
