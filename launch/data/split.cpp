#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "launch/data/data.h"
#include "runtime/base/text.h"
#include "runtime/files/new_folder.h"
#include "runtime/random/random_stream.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

/// The files of a class in a random order, which depends on the seed and their names alone.
std::multimap<double, fs::path> drawn_files(const fs::path& folder, int64_t seed) {
  const ScalarDraws draws(
      {static_cast<uint64_t>(seed), Purpose::kDataOrder, hash_name(folder.filename().string())});
  std::multimap<double, fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    const fs::path name = entry.path().lexically_relative(folder);
    if (!entry.is_regular_file() || name.filename().string().starts_with('.')) continue;
    files.emplace(draws.uniform(hash_name(name.string()), 0), name);
  }
  if (files.size() > 1) return files;
  throw DataError(fmt::format("{}: {}, and a class needs two", folder.string(),
                              counted(std::ssize(files), "file")),
                  "add files to it, or take the folder away");
}

/// True if `inner` is `outer` or lies within.
bool is_within(const fs::path& inner, const fs::path& outer) {
  return *inner.lexically_relative(outer).begin() != "..";
}

}  // namespace

ExitCode split(const SplitArguments& arguments, std::ostream& out) try {
  if (!fs::is_directory(arguments.folder)) {
    throw Error(ExitCode::kUsage, "no such folder: '" + arguments.folder + "'",
                "name the folder that holds a folder of images for each class");
  }
  const fs::path folder = fs::canonical(arguments.folder);
  if (fs::exists(folder / "train") && fs::exists(folder / "val")) {
    throw Error(ExitCode::kUsage, folder.string() + ": is already split into train/ and val/",
                "train on it by data.path, or name a folder of class folders");
  }
  const std::string given = arguments.out.empty() ? folder.string() + "_split" : arguments.out;
  const fs::path out_path = fs::weakly_canonical(fs::absolute(given));
  const bool is_inside = is_within(out_path, folder), is_around = is_within(folder, out_path);
  if (is_inside || is_around) {
    const char* relation = !is_around   ? "lies in '{}', whose folders are classes"
                           : !is_inside ? "holds '{}', the folder to split"
                                        : "is '{}', the folder to split";
    const std::string what = fmt::format(fmt::runtime(relation), folder.string());
    throw Error(ExitCode::kUsage, fmt::format("--out: '{}' {}", given, what),
                "choose a folder beside it");
  }
  NewFolder made(given);
  int64_t num_classes = 0;
  std::map<std::string, int64_t> num_files;  // by part
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const fs::path name = entry.path().filename();
    if (!entry.is_directory() || name.string().starts_with('.')) continue;
    const auto files = drawn_files(entry.path(), arguments.seed);
    const int64_t count = std::ssize(files);
    ++num_classes;
    int64_t valid = std::clamp<int64_t>(
        std::llround(arguments.valid_percent / 100 * static_cast<double>(count)), 1, count - 1);
    for (const auto& [draw, file] : files) {
      const std::string part = valid-- > 0 ? "val" : "train";
      const fs::path link = fs::path(made.working_path()) / part / name / file;
      fs::create_directories(link.parent_path());
      std::error_code refused;
      fs::create_hard_link(fs::canonical(entry.path() / file), link, refused);
      if (refused) fs::create_symlink(fs::canonical(entry.path() / file), link);  // another disk
      ++num_files[part];
    }
  }
  if (num_classes < 2) {
    throw DataError(
        fmt::format("{}: holds {}, expected a folder of files for each of at least two classes",
                    folder.string(), counted(num_classes, "folder")),
        "name the folder that holds a folder of images for each class");
  }
  made.commit();
  out << fmt::format(
      "{} in {}/train, {} in {}/val, links to those of {}\n"
      "to train on them: data.source=image_folder data.path={}, or shoal new --backbone vit "
      "--path {}\n",
      counted(num_files["train"], "file"), given, num_files["val"], given, folder.string(), given,
      given);
  return ExitCode::kOk;
} catch (const fs::filesystem_error& error) {
  throw DataError(error.what());
}

}  // namespace shoal
