#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/data/data_source.h"
#include "runtime/data/sequences/tabbed_files.h"

/// What the sources share that read labelled texts of the Long Range Arena from local files.
namespace shoal {

/// Token ids of texts: 0 is padding, byte b is b + 1.
inline constexpr int64_t kLraVocabulary = 257;

/// Keys of `data` that these sources have, inlined in their own options.
struct LraFiles {
  struct SplitOptions {
    std::vector<std::string> files;

    static constexpr auto fields() {
      return std::tuple{required("files", &SplitOptions::files,
                                 "files in data.path, one after the other", not_empty(),
                                 at_least_one())};
    }
  };
  std::string path = ".";
  SplitOptions train;
  SplitOptions valid;

  static constexpr auto fields() {
    return std::tuple{field("path", &LraFiles::path,
                            "folder of the files, relative to the working directory", not_empty()),
                      required("train", &LraFiles::train, "what is trained on"),
                      required("valid", &LraFiles::valid, "what is evaluated on")};
  }
  /// Refuses a file named twice in a split.
  void validate(Problems& problems) const;
  /// Refuses a file in both splits.
  void check_training(Problems& problems) const;

  /// The files of a split as they will be opened.
  std::vector<std::string> paths(Split split) const;
};

/// The tokens of a record's columns; of none the record is refused.
using LraTokens = std::function<std::vector<int64_t>(const std::vector<std::string_view>&)>;

std::unique_ptr<SampleSet> open_lra_files(const std::vector<std::string>& paths,
                                          const TabbedLayout& layout, LraTokens tokens_of);

/// Appends the tokens of the first max_length bytes.
void append_bytes(std::string_view text, int64_t max_length, std::vector<int64_t>& tokens);

}  // namespace shoal
