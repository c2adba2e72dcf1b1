#include "runtime/data/images/image_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/files/data_file.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

constexpr int kMostFolders = 16;
constexpr const char* kFoldersHint =
    "data.path with data.train.folder and data.valid.folder must name folders of images; for files "
    "of another layout set data.source";

struct FolderNames {
  std::vector<std::string> folders, images;
};

/// The names in a folder, in order; links are followed.
FolderNames names_in(const fs::path& folder) {
  FolderNames names;
  std::error_code failed;
  fs::directory_iterator entry(folder, failed);
  for (; !failed && entry != fs::directory_iterator(); entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with('.')) continue;
    std::error_code unknown;  // such as a link that leads nowhere
    if (entry->is_directory(unknown)) {
      names.folders.push_back(name);
    } else if (!image_ending(name).empty()) {
      names.images.push_back(name);
    }
  }
  if (failed) {
    throw DataError(folder.string() + ": cannot be listed: " + failed.message(), kFoldersHint);
  }
  std::ranges::sort(names.folders);
  std::ranges::sort(names.images);
  return names;
}

/// Collects the images of folders below one root.
class ImageFinder {
 public:
  explicit ImageFinder(fs::path root) : root_(std::move(root)) {}

  /// Adds those of the folder root/below and of its subfolders.
  void add(const fs::path& below, int64_t label, int depth) {
    const fs::path here = below.empty() ? root_ : root_ / below;
    if (depth > kMostFolders) {
      throw DataError(
          fmt::format("{}: more than {} folders inside each other", here.string(), kMostFolders),
          "is there a link that leads back?");
    }
    const FolderNames names = names_in(here);
    for (const std::string& name : names.images) {
      entries.push_back({(below / name).string(), label});
    }
    for (const std::string& name : names.folders) add(below / name, label, depth + 1);
  }

  std::vector<ImageEntry> entries;

 private:
  fs::path root_;
};

std::vector<ImageEntry> images_of_classes(const fs::path& root, const ClassOptions& classes) {
  const FolderNames names = names_in(root);
  if (!names.images.empty()) {
    throw DataError(
        fmt::format("{}: {} lies beside the class folders", root.string(), names.images.front()),
        "move it into one, or set data.classes: none");
  }
  const std::vector<int64_t> label_of =
      label_classes(names.folders, classes, root.string(), Split::kValid).label_of;
  if (names.folders.empty())
    throw DataError(root.string() + ": no class folder in it", kFoldersHint);
  ImageFinder finder(root);
  for (size_t i = 0; i < names.folders.size(); ++i) {
    const std::string& name = names.folders[i];
    const size_t before = finder.entries.size();
    finder.add(name, label_of.empty() ? static_cast<int64_t>(i) : label_of[i], 1);
    if (finder.entries.size() == before) {
      throw DataError(fmt::format("{}: a class folder without an image (.jpg, .jpeg, .png)",
                                  (root / name).string()),
                      "fetch its images, or take the folder away");
    }
  }
  return std::move(finder.entries);
}

/// Reads "CLASS/NAME.jpg 7", or "NAME.jpg" without classes; hands `refuse` what is wrong.
template <class Refuse>
ImageEntry parse_line(std::string_view line, int64_t num_classes, const Refuse& refuse) {
  ImageEntry entry;
  if (num_classes > 0) {
    const size_t space = std::min(line.find_last_of(" \t"), line.size() - 1);
    const std::optional<int64_t> label = parse_digits(line.substr(space + 1));
    if (!label || *label >= num_classes) {
      refuse(fmt::format("expected a path, a space and a label, 0 to {}", num_classes - 1));
    }
    entry.label = *label;
    line = line.substr(0, line.find_last_not_of(" \t", space) + 1);
  }
  const fs::path path = fs::path(line).lexically_normal();
  if (path.empty() || path.is_absolute() || *path.begin() == "..") {
    refuse("the path must lie in the folder");
  }
  entry.path = path.string();
  return entry;
}

}  // namespace

std::string image_ending(std::string_view name) {
  constexpr std::array<std::string_view, 3> kEndings{"jpg", "jpeg", "png"};
  const std::string ending = lower_case(name.substr(name.rfind('.') + 1));
  const bool is_image =
      name.find('.') != name.npos && std::ranges::find(kEndings, ending) != kEndings.end();
  return is_image ? ending : "";
}

std::vector<std::string> class_folders(const std::string& folder) {
  return names_in(folder).folders;
}

std::vector<ImageEntry> images_of_folder(const std::string& folder, const ClassOptions& classes) {
  if (classes.classes.value_or(0) > 0) return images_of_classes(folder, classes);
  ImageFinder finder(folder);
  finder.add({}, 0, 0);
  if (finder.entries.empty()) {
    throw DataError(folder + ": no image (.jpg, .jpeg, .png) in it or its subfolders",
                    kFoldersHint);
  }
  return std::move(finder.entries);
}

std::vector<ImageEntry> images_of_list(const std::string& list, int64_t num_classes) {
  const MappedFile file(list, "data.path must be the folder of the list that the recipe names");
  const std::string_view text{reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size()};
  std::vector<ImageEntry> entries;
  std::set<std::string> seen;
  int64_t number = 0;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++number;
    if (line.empty()) continue;
    const auto refuse = [&](const std::string& what) {
      throw DataError(fmt::format("{}:{}: {}", list, number, what), "correct the line");
    };
    ImageEntry entry = parse_line(line, num_classes, refuse);
    if (!seen.insert(entry.path).second) refuse(entry.path + " is named twice");
    entries.push_back(std::move(entry));
  }
  if (entries.empty())
    throw DataError(list + ": names no image", "one image per line: its path in the folder");
  return entries;
}

}  // namespace shoal
