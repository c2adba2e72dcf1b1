#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "tests/parsers/recipe_helper.h"

namespace shoal::sample {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

config::Loaded<Recipe> load(const std::string& path, const std::vector<std::string>& overrides = {},
                            config::UnsetVariable unset = config::UnsetVariable::kRefuse) {
  return config::load_options<Recipe>({path, overrides, variables()}, unset);
}

std::vector<std::string> file_mistakes(const std::string& path) {
  return testing::mistakes_of([&] { load(path); });
}

std::string origin(const config::Loaded<Recipe>& loaded, const std::string& path) {
  return config::origin_of(loaded.document.root, path);
}

TEST(Include, IsMergedKeyByKeyAndTheIncludingFileWins) {
  const Folder folder;
  folder.write("base/common.yaml",
               "train: {duration: 10ep, batch: 8, clip_norm: 2}\ndata: {files: [a, b]}\n");
  const std::string path = folder.write("recipe.yaml",
                                        "include: base/common.yaml\n"
                                        "model: {backbone: mixer}\n"
                                        "train: {batch: 16}\n"
                                        "data: {files: [c]}\n");
  const config::Loaded<Recipe> loaded = load(path);
  EXPECT_EQ(loaded.options.train.batch, 16);
  EXPECT_EQ(loaded.options.train.clip_norm, 2.0);
  EXPECT_THAT(loaded.options.data.files, ElementsAre("c"));
  EXPECT_EQ(origin(loaded, "train.batch"), path + ":3");
  EXPECT_EQ(origin(loaded, "train.clip_norm"), folder.path() + "/base/common.yaml:1");
  EXPECT_EQ(origin(loaded, "train.log_every"), "default");
}

TEST(Include, TakesAListInWhichLaterFilesWin) {
  const Folder folder;
  folder.write("one.yaml", "seed: 1\ntrain: {duration: 1ep, batch: 1}\n");
  folder.write("two.yaml", "seed: 2\n");
  const Recipe recipe =
      load(folder.write("r.yaml", "include: [one.yaml, two.yaml]\nmodel: {backbone: mixer}\n"))
          .options;
  EXPECT_EQ(recipe.seed, 2);
  EXPECT_EQ(recipe.train.batch, 1);
}

TEST(Include, IsRelativeToTheFileThatIncludes) {
  const Folder folder;
  folder.write("deep/inner.yaml", "include: ../side/part.yaml\nseed: 5\n");
  folder.write("side/part.yaml", "train: {duration: 1ep, batch: 3}\n");
  const Recipe recipe =
      load(folder.write("r.yaml", "include: deep/inner.yaml\nmodel: {backbone: mixer}\n")).options;
  EXPECT_EQ(recipe.train.batch, 3);
  EXPECT_EQ(recipe.seed, 5);
}

TEST(Include, PointsAtTheLineOfTheIncludedFile) {
  const Folder folder;
  const std::string base = folder.write("base.yaml", "train:\n  duration: 1ep\n  bach: 8\n");
  const std::string path = folder.write("r.yaml",
                                        "include: base.yaml\nmodel: {backbone: mixer}\n"
                                        "train: {batch: many}\n");
  EXPECT_THAT(file_mistakes(path),
              ElementsAre(path + ":3:16: train.batch: expected an integer, found 'many'",
                          base + ":3:3: train.bach: unknown key; did you mean 'batch'?"));
}

TEST(Include, RefusesACycle) {
  const Folder folder;
  const std::string b = folder.write("b.yaml", "include: a.yaml\n");
  const std::string a = folder.write("a.yaml", "seed: 1\ninclude: ./b.yaml\n");
  EXPECT_THAT(file_mistakes(a),
              ElementsAre(b + ":1:10: include: include cycle: " + a + " -> " + b + " -> " + a));
  const std::string self = folder.write("self.yaml", "include: [self.yaml]\n");
  EXPECT_THAT(file_mistakes(self),
              ElementsAre(self + ":1:11: include: include cycle: " + self + " -> " + self));
}

TEST(Include, RefusesWhatIsNoFile) {
  const Folder folder;
  const std::string path = folder.write("r.yaml", "include: [none.yaml, 3, [x], \"${seed}\", .]\n");
  const std::string expected = "include: expected a path without references, or a list of such, ";
  EXPECT_THAT(
      file_mistakes(path),
      ElementsAre(
          path + ":1:11: include: cannot read '" + folder.path() +
              "/none.yaml': No such file or directory",
          path + ":1:22: include: cannot read '" + folder.path() + "/3': No such file or directory",
          path + ":1:25: " + expected + "found a list",
          path + ":1:30: " + expected + "found the quoted text \"${seed}\"",
          path + ":1:41: include: cannot read '" + folder.path() + "/': Is a directory"));
}

TEST(Include, IsBoundedInNumber) {
  const Folder folder;
  for (int i = 0; i < 40; ++i) {
    const std::string next = "f" + std::to_string(i + 1) + ".yaml";
    folder.write("f" + std::to_string(i) + ".yaml", "include: [" + next + ", " + next + "]\n");
  }
  folder.write("f40.yaml", "seed: 1\n");
  EXPECT_THAT(file_mistakes(folder.path() + "/f0.yaml"),
              ::testing::Contains(HasSubstr("more than 64 files are included")));
}

TEST(Recipe, ThatCannotBeReadIsNamed) {
  EXPECT_THAT(file_mistakes("/nonexistent/r.yaml"),
              ElementsAre("/nonexistent/r.yaml:1:1: cannot read '/nonexistent/r.yaml': No such "
                          "file or directory"));
}

TEST(Recipe, IsNotAwaitedFromANamedPipe) {
  const Folder folder;
  const std::string path = folder.path() + "/pipe.yaml";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(file_mistakes(path),
              ElementsAre(path + ":1:1: '" + path + "' is a named pipe, not a file"));
  const std::string including = folder.write("r.yaml", "include: pipe.yaml\n");
  EXPECT_THAT(file_mistakes(including), ElementsAre(including + ":1:10: include: '" + path +
                                                    "' is a named pipe, not a file"));
}

TEST(Override, BeatsTheFileAndTheLastOneWins) {
  const Recipe recipe =
      read(kGood + "seed: 3\n", {"seed=4", "seed=5", "data.path=/x", "data.files=[p, q]"});
  EXPECT_EQ(recipe.seed, 5);
  EXPECT_EQ(recipe.data.path, "/x");
  EXPECT_THAT(recipe.data.files, ElementsAre("p", "q"));
}

TEST(Override, IsAppliedBeforeReferencesAreReplaced) {
  EXPECT_EQ(read(kGood + "seed: ${train.batch}\n", {"train.batch=32"}).seed, 32);
  EXPECT_EQ(read(kGood, {"seed=${train.batch}"}).seed, 8);
  EXPECT_EQ(read(kGood + "data:\n  path: ${env:NOWHERE}\n", {"data.path=/here"}).data.path,
            "/here");
}

TEST(Override, ReplacesAWholeMapping) {
  const Recipe recipe =
      read(kGood + "optimizer: {name: lamb, beta1: 0.5}\n", {"optimizer={name: sgd, lr: 0.5}"});
  EXPECT_EQ(recipe.optimizer.options<Sgd>().lr, 0.5);
}

TEST(Override, RemovesAKey) {
  const Recipe recipe = read(kGood + "optimizer: {name: lamb, lr: 1, beta1: 0.5}\n",
                             {"~optimizer.beta1", "optimizer.name=sgd"});
  EXPECT_EQ(recipe.optimizer.options<Sgd>().lr, 1.0);
}

TEST(Override, IsQuotedAsItsPlace) {
  const config::Loaded<Recipe> loaded =
      config::load_options_text<Recipe>(kGood, "r.yaml", {"", {"seed=2", "data.path=/x"}, {}});
  EXPECT_EQ(config::find_position(loaded.document.root, "data.path").text(),
            "command line: data.path=/x");
  EXPECT_EQ(origin(loaded, "data.path"), "command line");
}

TEST(Override, AloneMakesARecipe) {
  const Recipe recipe =
      load("", {"model.backbone=mixer", "train={duration: 5step, batch: 2}"}).options;
  EXPECT_EQ(recipe.train.duration, Duration::steps(5));
}

TEST(Override, MayHoldAHashThatIsNoComment) {
  EXPECT_EQ(read(kGood, {"data.path=a#b"}).data.path, "a#b");
  EXPECT_EQ(read(kGood, {"data.path=\"a #b\""}).data.path, "a #b");
  EXPECT_EQ(read(kGood, {"data.path='#b'"}).data.path, "#b");
  EXPECT_EQ(read(kGood, {"optimizer={name: sgd,\n lr: 0.5  # half\n}"}).optimizer.name(), "sgd");
}

TEST(Override, OfSeveralLinesIsNoFoldedText) {
  EXPECT_THAT(mistakes(kGood, {"data.path=a\nb"}),
              ElementsAre("command line: data.path=a b: the value has a line end, which YAML would "
                          "make a blank; write it in one line"));
  EXPECT_EQ(read(kGood, {"data.path=a\n"}).data.path, "a");
  EXPECT_EQ(read(kGood, {"data={path: a,\n flip: false}"}).data.path, "a");
}

TEST(HomeFolder, StandsForATildeInPaths) {
  EXPECT_EQ(read(kGood + "data: {path: ~/cifar}\n").data.path, "/home/me/cifar");
  EXPECT_EQ(read(kGood + "data: {path: ~/}\n").data.path, "/home/me/");
  EXPECT_EQ(read(kGood, {"data.path=~/"}).data.path, "/home/me/");
  EXPECT_EQ(read(kGood + "data: {path: ./~/x}\n").data.path, "./~/x");
  EXPECT_EQ(read(kGood + "data: {files: [~/x]}\n").data.files.front(), "~/x");  // is no path
}

TEST(HomeFolder, IsNoOtherUsersAndNoTildeAlone) {
  const std::string alone =
      "r.yaml:4:14: data.path: '~' alone is null in YAML; write ~/ for the home folder";
  EXPECT_THAT(mistakes(kGood + "data: {path: ~}\n"), ElementsAre(alone));
  EXPECT_THAT(mistakes(kGood + "data: {path: \"~\"}\n"), ElementsAre(alone));
  EXPECT_THAT(mistakes(kGood + "data: {path: ~you/x}\n"),
              ElementsAre("r.yaml:4:14: data.path: only ~/ is expanded; write ./~you for a folder "
                          "of that name"));
}

TEST(HomeFolder, MustBeKnownWhereItIsNeeded) {
  const std::string text = kGood + "data: {path: ~/cifar}\n";
  EXPECT_THAT(
      testing::mistakes_of([&] { config::load_options_text<Recipe>(text, "r.yaml"); }),
      ElementsAre("r.yaml:4:14: data.path: '~' stands for HOME, which is not set; write the "
                  "whole path"));
  EXPECT_EQ(config::load_options_text<Recipe>(text, "r.yaml", {}, config::UnsetVariable::kKeep)
                .options.data.path,
            "~/cifar");
}

TEST(Reference, KeepsTheTypeOfAWholeValue) {
  const Recipe recipe =
      read(kGood + "seed: ${train.batch}\ndata:\n  path: run_${seed}/${env:DATA}\n");
  EXPECT_EQ(recipe.seed, 8);
  EXPECT_EQ(recipe.data.path, "run_8//data");
}

TEST(Reference, CopiesListsAndMappings) {
  const std::string text =
      "copy: ${from}\n"
      "from:\n"
      "  files: [a, \"$${x}\"]\n"
      "  inner: {flip: true}\n"
      "files: ${copy.files}\n";
  config::Diagnostics diagnostics;
  const config::Document document = config::load_document({"r.yaml", {}, {}, text}, diagnostics);
  EXPECT_THAT(diagnostics.lines(), ::testing::IsEmpty());
  const std::string inner = "  files: [a, \"$${x}\"]\n  inner:\n    flip: true\n";
  EXPECT_EQ(config::emit(document.root),
            "copy:\n" + inner + "from:\n" + inner + "files: [a, \"$${x}\"]\n");
  EXPECT_EQ(config::find_position(document.root, "copy.inner.flip").text(), "r.yaml:1:7");
}

TEST(Reference, FollowsOtherReferences) {
  EXPECT_EQ(read(kGood + "seed: ${model.width}\n",
                 {"model.width=${model.num_experts}", "model.num_experts=7"})
                .seed,
            7);
}

TEST(Reference, TakesAVariableAsAPlainValue) {
  EXPECT_EQ(read(kGood + "seed: ${env:SEVEN}\n").seed, 7);
  EXPECT_EQ(read(kGood + "data:\n  path: ${env:DATA}/cifar\n").data.path, "/data/cifar");
}

TEST(Reference, IsEscapedByASecondDollar) {
  EXPECT_EQ(read(kGood + "data:\n  path: $${env:DATA}$5\n").data.path, "${env:DATA}$5");
}

TEST(Reference, ToAnUnsetVariableStaysWhereValuesAreNotUsed) {
  const std::string text = kGood + "data:\n  path: ${env:NOWHERE}/x\nseed: ${env:NOWHERE}\n";
  const config::Loaded<Recipe> loaded = config::load_options_text<Recipe>(
      text, "r.yaml", {"", {}, variables()}, config::UnsetVariable::kKeep);
  EXPECT_EQ(loaded.options.data.path, "${env:NOWHERE}/x");
  EXPECT_EQ(loaded.options.seed, 1);
}

TEST(Document, TakesAByteOrderMarkAndWindowsLineEnds) {
  EXPECT_EQ(read("\xef\xbb\xbfmodel: {backbone: mixer}\r\ntrain: {duration: 1ep, batch: 4}\r\n")
                .train.batch,
            4);
}

TEST(Document, CountsColumnsInBytes) {
  EXPECT_THAT(mistakes(kGood + "data: {path: \"\xc3\xa4\", flip: no}\n"),
              ElementsAre("r.yaml:4:26: data.flip: expected true or false, found 'no'"));
}

}  // namespace
}  // namespace shoal::sample
