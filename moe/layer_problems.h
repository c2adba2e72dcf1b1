#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/options/config.h"

namespace shoal {

/// Mistakes in the options of one layer, found while it is built.
class LayerProblems : public Problems {
 public:
  /// `path`: the layer's, put before each message.
  explicit LayerProblems(std::string path) : path_(std::move(path)) {}
  void add(std::string_view path, std::string_view what) override {
    lines_.push_back(path_ + "." + std::string(path) + ": " + std::string(what));
  }
  /// Throws one ConfigError with all of them.
  void throw_if_any() const {
    if (!lines_.empty()) throw ConfigError(lines_);
  }

 private:
  std::string path_;
  std::vector<std::string> lines_;
};

}  // namespace shoal
