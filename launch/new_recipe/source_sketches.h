#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace shoal {

enum class DataKind {
  kImages,
  kText,       ///< to predict the next token
  kAnswers,    ///< sequences with some labelled tokens
  kSequences,  ///< sequences with a class
};

/// A data source in a first recipe, with values for a first training.
struct SourceSketch {
  std::string_view name;
  DataKind kind;
  int64_t side;             ///< of images, pixels
  int64_t channels;         ///< of images
  std::string_view path;    ///< data.path unless the user gives it; "": needs no files
  std::string_view files;   ///< what is in the folder
  std::string_view lines;   ///< further keys of `data`
  std::string_view change;  ///< augmentation of images that are classified
};

/// One of each registered source.
std::span<const SourceSketch> source_sketches();

}  // namespace shoal
