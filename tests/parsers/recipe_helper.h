#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/options/config_reader.h"
#include "runtime/options/config_writer.h"
#include "tests/parsers/sample_recipe.h"
#include "tests/support/config_error.h"
#include "tests/support/scratch_folder.h"

namespace shoal::sample {

/// The required keys, in three lines: what a test adds begins in line 4.
inline const std::string kGood =
    "model: {backbone: mixer}\n"
    "train:\n"
    "  {duration: 10ep, batch: 8}\n";

inline config::Environment variables() {
  return [](const std::string& name) -> std::optional<std::string> {
    if (name == "DATA") return "/data";
    if (name == "SEVEN") return "7";
    if (name == "EMPTY") return "";
    if (name == "HOME") return "/home/me";
    return std::nullopt;
  };
}

inline Recipe read(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return config::load_options_text<Recipe>(text, "r.yaml", {"", overrides, variables()}).options;
}

/// The lines of the error that reading throws; none if it does not.
inline std::vector<std::string> mistakes(const std::string& text,
                                         const std::vector<std::string>& overrides = {}) {
  return testing::mistakes_of([&] { read(text, overrides); });
}

/// A folder of files that goes away with the object.
class Folder {
 public:
  /// Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& text) const {
    const std::string file = scratch_.file(name);
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    testing::write_file(file, text);
    return file;
  }
  const std::string& path() const { return scratch_.path(); }

 private:
  testing::ScratchFolder scratch_;
};

}  // namespace shoal::sample
