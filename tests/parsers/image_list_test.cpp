#include "runtime/data/images/image_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Found = std::vector<std::pair<std::string, int64_t>>;

Found pairs(const std::vector<ImageEntry>& entries) {
  Found found;
  for (const ImageEntry& entry : entries) found.emplace_back(entry.path, entry.label);
  return found;
}

class ImageList : public ::testing::Test {
 protected:
  ImageList() {
    std::string pattern = (fs::temp_directory_path() / "image_list.XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~ImageList() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text = "x") const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  Found in_folder(std::optional<int64_t> classes) const {
    return pairs(images_of_folder(folder_.string(), {classes.value_or(0), {}}));
  }
  Found in_list(const std::string& text, std::optional<int64_t> classes) const {
    write("list.txt", text);
    return pairs(images_of_list((folder_ / "list.txt").string(), classes.value_or(0)));
  }
  template <class Call>
  static std::string refusal(const Call& call) {
    try {
      call();
    } catch (const DataError& error) {
      return std::string(error.what()) + "; " + error.hint();
    }
    return "taken";
  }

  fs::path folder_;
};

TEST_F(ImageList, LabelsClassFoldersInOrderOfName) {
  for (const char* name : {"dog/b.JPEG", "cat/2.png", "dog/deep/a.jpg", "cat/10.jpeg",
                           "dog/notes.txt", "dog/.hidden.jpg", ".git/x.jpg", "readme.md"}) {
    write(name);
  }
  EXPECT_EQ(
      in_folder(2),
      (Found{{"cat/10.jpeg", 0}, {"cat/2.png", 0}, {"dog/b.JPEG", 1}, {"dog/deep/a.jpg", 1}}));
}

TEST_F(ImageList, FindsImagesWithoutClassesAtAnyDepth) {
  for (const char* name : {"b.jpg", "a/c.png", "a/b/d.jpg"}) write(name);
  fs::create_directory_symlink(folder_ / "a", folder_ / "z");
  EXPECT_EQ(
      in_folder({}),
      (Found{{"b.jpg", 0}, {"a/c.png", 0}, {"a/b/d.jpg", 0}, {"z/c.png", 0}, {"z/b/d.jpg", 0}}));
}

TEST_F(ImageList, RefusesFoldersThatAreNoDataSet) {
  EXPECT_THAT(refusal([&] { in_folder({}); }), HasSubstr("no image"));
  write("cat/a.jpg");
  EXPECT_THAT(refusal([&] { in_folder(3); }),
              AllOf(HasSubstr("1 class name,"), HasSubstr("data.classes is 3")));
  fs::create_directory(folder_ / "dog");
  EXPECT_THAT(refusal([&] { in_folder(2); }), HasSubstr("dog: a class folder without an image"));
  write("stray.png");
  EXPECT_THAT(refusal([&] { in_folder(2); }), HasSubstr("stray.png lies beside"));
  EXPECT_THAT(refusal([&] {
                images_of_folder((folder_ / "none").string(), {0, {}});
              }),
              HasSubstr("cannot be listed"));
}

TEST_F(ImageList, RefusesALinkThatLeadsBack) {
  write("a/b.jpg");
  fs::create_directory_symlink(folder_, folder_ / "a" / "loop");
  EXPECT_THAT(refusal([&] { in_folder({}); }), HasSubstr("a link that leads back?"));
}

TEST_F(ImageList, ReadsAListInItsOrder) {
  EXPECT_EQ(in_list("b c.jpg  1\n\n./a.png\t0\r\n", 2), (Found{{"b c.jpg", 1}, {"a.png", 0}}));
  EXPECT_EQ(in_list("b c.jpg\nd/../a.png", {}), (Found{{"b c.jpg", 0}, {"a.png", 0}}));
}

TEST_F(ImageList, RefusesWrongLinesByTheirNumber) {
  for (const char* line :
       {"a.jpg", "a.jpg 2", "a.jpg -1", "a.jpg x", "a.jpg 1x", "a.jpg 99999999999999999999"}) {
    EXPECT_THAT(refusal([&] { in_list("b.jpg 0\n" + std::string(line) + "\n", 2); }),
                AllOf(HasSubstr("list.txt:2: expected a path, a space and a label, 0 to 1"),
                      HasSubstr("correct the line")))
        << line;
  }
  for (const char* line : {"/etc/a.jpg", "../a.jpg", "a/../../b.jpg", ".."}) {
    EXPECT_THAT(refusal([&] { in_list(line, {}); }), HasSubstr("must lie in the folder")) << line;
  }
  EXPECT_THAT(refusal([&] { in_list("a.jpg\nb.jpg\n./a.jpg", {}); }),
              HasSubstr("list.txt:3: a.jpg is named twice"));
  EXPECT_THAT(refusal([&] { in_list("\n\n", {}); }), HasSubstr("names no image"));
  EXPECT_THAT(refusal([&] { images_of_list((folder_ / "no.txt").string(), 0); }),
              HasSubstr("no 'no.txt'"));
}

}  // namespace
}  // namespace shoal
