#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/options/config.h"

namespace shoal {

/// Collects mistakes in the options of a layer while it is built, to report all in one error.
class LayerProblems : public Problems {
 public:
  /// `path`: the layer's module path, such as `blocks.2.moe`, put before each message.
  explicit LayerProblems(std::string path) : path_(std::move(path)) {}
  /// Adds a mistake. `path`: the option at fault, relative to the layer, such as `experts.hidden`.
  void add(std::string_view path, std::string_view what) override {
    lines_.push_back(path_ + "." + std::string(path) + ": " + std::string(what));
  }
  /// Throws one ConfigError with all mistakes, if there are any.
  void throw_if_any() const {
    if (!lines_.empty()) throw ConfigError(lines_);
  }

 private:
  std::string path_;
  std::vector<std::string> lines_;
};

}  // namespace shoal
