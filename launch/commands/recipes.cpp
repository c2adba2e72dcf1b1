#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "launch/commands/commands.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

/// The first sentence of the comment that the file begins with, without the file's own name, or
/// its path, and a colon in front; "" if the file does not begin with a comment.
std::string purpose_of(const fs::path& file) {
  std::ifstream stream(file);
  std::string text;
  for (std::string line; std::getline(stream, line) && line.starts_with('#');) {
    const std::size_t begin = line.find_first_not_of("# ");
    if (begin == std::string::npos) break;
    if (!text.empty()) text += ' ';
    text += line.substr(begin);
    const std::size_t stop = text.find(". ");
    if (stop != std::string::npos) text.erase(stop + 1);
    if (text.ends_with('.')) break;
  }
  const std::string name = text.substr(0, text.find(": "));
  const bool has_name = name.size() < text.size() && name.find(' ') == std::string::npos &&
                        fs::path(name).filename() == file.filename();
  if (has_name) text.erase(0, name.size() + 2);
  return text;
}

/// As the user would type it from here.
std::string shown(const fs::path& file) {
  std::error_code failed;
  const fs::path near = fs::proximate(file, failed);
  const bool is_below = !failed && !near.empty() && *near.begin() != "..";
  return is_below ? near.string() : file.string();
}

}  // namespace

ExitCode recipes(const std::string& folder, std::ostream& out) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    const bool is_part = entry.path().parent_path().filename() == "base";  // to be included only
    if (entry.path().extension() == ".yaml" && !is_part) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    const std::string purpose = purpose_of(file);
    if (!purpose.empty()) out << shown(file) << "\n    " << purpose << "\n";
  }
  return ExitCode::kOk;
}

std::string find_recipes_folder(const std::string& program) {
  const fs::path here = fs::path(program).parent_path();
  const fs::path installed = here.parent_path() / "share" / "shoal" / "configs";
  if (fs::is_directory(installed)) return installed.string();
  for (fs::path folder = here; folder.has_relative_path(); folder = folder.parent_path()) {
    const bool is_source = fs::exists(folder / "CMakeLists.txt");
    if (is_source && fs::is_directory(folder / "configs")) return (folder / "configs").string();
  }
  throw Error(ExitCode::kUsage, "no folder of recipes belongs to " + program,
              "run the program from where it was built or installed");
}

}  // namespace shoal
