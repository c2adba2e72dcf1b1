#include "launch/recipe/recipes.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "launch/recipe/recipe.h"
#include "runtime/base/text.h"
#include "runtime/files/file_system.h"
#include "runtime/options/config_reader.h"
#include "runtime/options/config_writer.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

/// True if the point at the end of `text` ends a sentence, not an abbreviation.
bool ends_sentence(std::string_view text) {
  constexpr std::array<std::string_view, 4> kAbbreviations{" al.", "e.g.", "i.e.", " vs."};
  return text.ends_with('.') && std::ranges::none_of(kAbbreviations, [text](std::string_view word) {
           return text.ends_with(word);
         });
}

constexpr std::size_t kShortPurpose = 16;  // a sentence of this length is a name: "ViT-B/16."

/// The length of the first sentence, names left out; 0 if the text does not hold its end.
std::size_t sentence_length(std::string_view text) {
  for (std::size_t at = text.find('.', kShortPurpose); at != std::string_view::npos;
       at = text.find('.', at + 1)) {
    const bool is_word_end = at + 1 == text.size() || text[at + 1] == ' ';
    if (is_word_end && ends_sentence(text.substr(0, at + 1))) return at + 1;
  }
  return 0;
}

/// The first sentence or two of the comment that the file begins with, without the file's own name
/// or path and a colon in front; "" without such a comment.
std::string purpose_of(const fs::path& file) {
  std::ifstream stream(file);
  std::string text;
  for (std::string line; std::getline(stream, line) && line.starts_with('#');) {
    const std::size_t begin = line.find_first_not_of("# ");
    if (begin == std::string::npos) break;
    if (!text.empty()) text += ' ';
    text += line.substr(begin);
    const std::size_t length = sentence_length(text);
    if (length == 0) continue;
    text.erase(length);
    break;
  }
  const std::string name = text.substr(0, text.find(": "));
  const bool has_name = name.size() < text.size() && name.find(' ') == std::string::npos &&
                        fs::path(name).filename() == file.filename();
  if (has_name) text.erase(0, name.size() + 2);
  return text;
}

constexpr std::size_t kMostNearest = 3;

/// The recipes below a folder, in order of path, without the parts that recipes include.
std::vector<fs::path> recipe_files(const std::string& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    const bool is_part = entry.path().parent_path().filename() == "base";
    if (entry.path().extension() == ".yaml" && !is_part) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

/// The path as the user would type it from here.
std::string shown(const fs::path& file) {
  std::error_code failed;
  const fs::path near = fs::proximate(file, failed);
  const bool is_below = !failed && !near.empty() && *near.begin() != "..";
  return is_below ? near.string() : file.string();
}

/// The files whose name is that of `path`, else the nearest to it.
std::vector<std::string> of_nearest_name(std::vector<fs::path> files, const fs::path& path) {
  std::ranges::sort(files);
  std::vector<std::string> names, found;
  for (const fs::path& file : files) names.push_back(file.stem());
  const std::string wanted = path.filename().replace_extension();
  const bool is_one = std::ranges::find(names, wanted) != names.end();
  const std::string name = is_one ? wanted : nearest(wanted, names);
  for (const fs::path& file : files) {
    const bool is_near = !name.empty() && file.stem() == name;
    if (is_near && found.size() < kMostNearest) found.push_back(shown(file));
  }
  return found;
}

}  // namespace

ExitCode recipes(const std::string& folder, const std::vector<std::string>& words,
                 std::ostream& out) {
  bool is_any = words.empty();
  for (const fs::path& file : recipe_files(folder)) {
    const std::string purpose = purpose_of(file);
    const std::string text = lower_case(shown(file) + " " + purpose);
    const bool fits = std::ranges::all_of(words, [&text](const std::string& word) {
      return text.find(lower_case(word)) != std::string::npos;
    });
    if (purpose.empty() || !fits) continue;
    out << shown(file) << "\n    " << purpose << "\n";
    is_any = true;
  }
  if (is_any) return ExitCode::kOk;
  throw Error(ExitCode::kUsage,
              "no recipe has '" + join_words(words, " ") + "' in its path or first sentence",
              "see shoal recipes");
}

ExitCode show(const ShowArguments& arguments, std::ostream& out) {
  LoadedRecipe loaded =
      config::load_options<Recipe>(arguments.source, config::UnsetVariable::kKeep);
  if (!arguments.minimal) loaded.found = find_classes(loaded.options);
  const config::Type& type = config::type_of<Recipe>();
  config::Node tree = arguments.minimal ? config::to_minimal_node(type, &loaded.options)
                                        : config::to_node(type, &loaded.options);
  config::keep_unset_variables(tree, loaded.document.root);
  out << config::emit(tree, origins_of(loaded));
  return ExitCode::kOk;
}

std::vector<std::string> nearest_recipes(const std::string& path, const std::string& folder) {
  std::error_code failed;
  const fs::path beside = fs::path(path).parent_path();
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(beside.empty() ? "." : beside, failed), end;
       !failed && entry != end; entry.increment(failed)) {
    if (entry->path().extension() == ".yaml") files.push_back(entry->path());
  }
  std::vector<std::string> found = of_nearest_name(files, path);
  return found.empty() ? of_nearest_name(recipe_files(folder), path) : found;
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
