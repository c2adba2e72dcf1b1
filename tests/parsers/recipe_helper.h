#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/config_reader.h"
#include "runtime/config_writer.h"
#include "tests/parsers/sample_recipe.h"

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
    return std::nullopt;
  };
}

inline Recipe read(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return config::load_options_text<Recipe>(text, "r.yaml", {"", overrides, variables()}).options;
}

/// The lines of the error that reading throws; none if it does not.
inline std::vector<std::string> mistakes(const std::string& text,
                                         const std::vector<std::string>& overrides = {}) {
  try {
    read(text, overrides);
  } catch (const ConfigError& error) {
    return error.lines();
  }
  return {};
}

/// A folder of files that goes away with the object.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / ("shoal_" + name)) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  /// Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return file.string();
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace shoal::sample
