#include "launch/evaluate/evaluation_images.h"
#include "launch/data/recipe_source.h"
#include "launch/model/build_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "launch/evaluate/baseline_evaluation.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/failing_file_system.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_file;
using testing::ScratchFolder;

Recipe denoise_recipe(const std::vector<std::string>& overrides = {}) {
  return testing::equality_recipe(testing::joined(
      {"model={backbone: vit, patch: 4, width: 8, depth: 1, heads: 2, hidden: 8, pool: mean}",
       "task={name: denoise}", "data.normalise={mean: [0, 0, 0], std: [1, 1, 1]}"},
      overrides));
}

/// The parts of an evaluation of a recipe's model as it is at the start.
class Evaluated {
 public:
  Evaluated(const Recipe& recipe, RankGrid& grid)
      : recipe_(recipe),
        grid_(grid),
        data_(open_split(make_source(recipe), Split::kValid)),
        model_(build_model(recipe, data_.source->shape(), {&grid, torch::kCPU})) {}
  EvaluationParts parts() { return {*model_.task, recipe_, data_, grid_}; }

 private:
  const Recipe& recipe_;
  RankGrid& grid_;
  OpenSplit data_;
  BuiltModel model_;
};

std::set<std::string> files_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename());
  }
  return names;
}

class EvaluationImages : public ::testing::Test {
 protected:
  DrawnImages draw(const Recipe& recipe, int64_t count, FileSystem& files) {
    RankGrid grid = testing::self_grid();
    return draw_evaluation_images({scratch_.file("images"), count}, Evaluated(recipe, grid).parts(),
                                  0, files);
  }

  ScratchFolder scratch_;
};

TEST_F(EvaluationImages, AreAFileASampleAndASheetOfAll) {
  testing::FailingFileSystem files;
  const DrawnImages drawn = draw(denoise_recipe(), 9, files);  // more than a batch of 8
  EXPECT_EQ(drawn.count, 9);
  EXPECT_THAT(drawn.columns,
              ElementsAre("clean", "noisy", "restored", HasSubstr("absolute difference")));
  const std::set<std::string> names = files_in(scratch_.file("images"));
  EXPECT_EQ(names.size(), 10u);
  EXPECT_TRUE(names.contains("image-000.png") && names.contains("image-008.png") &&
              names.contains("contact_sheet.png"));
}

TEST_F(EvaluationImages, AreNoMoreThanThereAre) {
  testing::FailingFileSystem files;
  EXPECT_EQ(draw(denoise_recipe(), 100, files).count, 11);
  EXPECT_EQ(files_in(scratch_.file("images")).size(), 12u);
}

TEST_F(EvaluationImages, TakeAnEmptyFolderAndNoOther) {
  PosixFileSystem files;
  std::filesystem::create_directory(scratch_.file("images"));
  draw(denoise_recipe(), 1, files);
  try {
    draw(denoise_recipe(), 1, files);
    FAIL() << "took a folder that holds something";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("--images"));
  }
}

TEST_F(EvaluationImages, AreRefusedOfATaskThatDrawsNone) {
  PosixFileSystem files;
  try {
    draw(testing::equality_recipe(), 1, files);
    FAIL() << "drew a classifier";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("task classify draws no pictures"));
  }
  EXPECT_FALSE(std::filesystem::exists(scratch_.file("images")));
}

TEST_F(EvaluationImages, TellAFileSystemThatFails) {
  testing::FailingFileSystem counted;
  draw(denoise_recipe(), 2, counted);
  for (int64_t call = 0; call < counted.calls(); ++call) {
    std::filesystem::remove_all(scratch_.file("images"));
    if (counted.log()[size_t(call)] == "close") continue;  // of a folder it changes nothing
    testing::FailingFileSystem files;
    files.fail_at = call;
    files.fail_for_ever = true;
    EXPECT_THROW(draw(denoise_recipe(), 2, files), StorageError) << counted.log()[size_t(call)];
  }
}

TEST(EvaluationImagesRanks, AreThoseOfOneRank) {
  const ScratchFolder scratch;
  const Recipe recipe = denoise_recipe();
  const auto draw = [&](RankGrid& grid, const std::string& folder) {
    PosixFileSystem files;
    draw_evaluation_images({folder, 10}, Evaluated(recipe, grid).parts(), 0, files);
  };
  RankGrid self = testing::self_grid();
  draw(self, scratch.file("one"));
  testing::run_grid(1, 3, [&](RankGrid& grid) { draw(grid, scratch.file("three")); });
  ASSERT_EQ(files_in(scratch.file("one")), files_in(scratch.file("three")));
  for (const std::string& name : files_in(scratch.file("one"))) {
    EXPECT_EQ(read_file(scratch.file("one/" + name)), read_file(scratch.file("three/" + name)));
  }
}

TEST(SpreadSamples, AreEvenlySpaced) {
  const auto all = make_source(denoise_recipe())->open(Split::kValid);  // 11
  const auto some = spread_samples(*all, 4);
  ASSERT_EQ(some->size(), 4);
  for (const auto& [index, of_all] : {std::pair{0, 0}, {1, 2}, {2, 5}, {3, 8}}) {
    EXPECT_EQ(some->read(index, 0).pixel_CHW, all->read(of_all, 0).pixel_CHW);
  }
  EXPECT_EQ(spread_samples(*all, 40)->size(), 11);
}

TEST(BaselineEvaluationRanks, EqualsThatOfOneRank) {
  const Recipe recipe = denoise_recipe();
  const auto evaluated = [&](RankGrid& grid) {
    Evaluated model(recipe, grid);
    const std::shared_ptr<Baselines> baselines = model.parts().task.baselines();
    fit_baselines(*baselines, model.parts());
    return evaluate_baselines(*baselines, model.parts());
  };
  RankGrid self = testing::self_grid();
  const std::vector<BaselineScore> expected = evaluated(self);
  ASSERT_EQ(expected.size(), 4u);
  testing::run_grid(1, 2, [&](RankGrid& grid) {
    const std::vector<BaselineScore> found = evaluated(grid);
    ASSERT_EQ(found.size(), 4u);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].label, expected[i].label);
      for (size_t m = 0; m < 2; ++m) {
        EXPECT_NEAR(found[i].metrics[m].value, expected[i].metrics[m].value, 1e-9);
      }
    }
  });
}

TEST(BaselineScores, AreAnEntryAndARowEach) {
  const std::vector<BaselineScore> scores{
      {"a", "first", {}, {{"psnr", 20.5, Metric::Kind::kNumber, "PSNR (dB)"}}},
      {"b",
       "second",
       {{"images", 40, Metric::Kind::kCount}},
       {{"psnr", 21, Metric::Kind::kNumber, "PSNR (dB)"}}}};
  EXPECT_EQ(to_json(scores).dump(), R"({"a":{"psnr":20.5},"b":{"images":40,"psnr":21.0}})");
  EXPECT_THAT(to_text(scores), AllOf(HasSubstr("PSNR (dB)"), HasSubstr("first "),
                                     HasSubstr("20.5000"), HasSubstr("second ")));
}

}  // namespace
}  // namespace shoal
