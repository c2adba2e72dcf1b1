#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/data/data_source.h"

namespace shoal {

/// Data sources `lra_text` and `lra_retrieval`, tasks of the Long Range Arena (LRA): classify texts
/// by their bytes. Local files with one sample a line, tab-separated columns and no header:
///
/// - `lra_text` (kTexts = 1): `label, text`. LRA reads movie reviews.
/// - `lra_retrieval` (kTexts = 2): `label, id1, id2, text1, text2`; label 1 if the texts belong
///   together, else 0, as in LRA's files of the ACL Anthology Network. LRA encodes each text alone
///   and compares their features; here the model sees both at once.
///
/// Labels are 0 to classes - 1. A sample is the first max_length bytes of each text, with a
/// separator between two. Token ids: 0 is padding, byte b is b + 1, the separator 257.
template <int64_t kTexts>
class LraTextsSource : public DataSource {
 public:
  struct SplitOptions {
    std::vector<std::string> files;

    static constexpr auto fields() {
      return std::tuple{required("files", &SplitOptions::files,
                                 "files in data.path, one after the other", not_empty(),
                                 at_least_one(), file_path())};
    }
  };
  struct Options {
    std::string path = ".";
    int64_t max_length = kTexts == 1 ? 4096 : 4000;
    int64_t classes = 2;
    SplitOptions train;
    SplitOptions valid;

    static constexpr auto fields() {
      const std::tuple shared{
          field("path", &Options::path, "folder of the files, relative to the working directory",
                not_empty(), file_path(), on_resume(OnResume::kFree)),
          field("max_length", &Options::max_length, "bytes that are read of each text",
                unit("tokens"), in_range(1, (1 << 20) / kTexts)),
          required("train", &Options::train, "what is trained on"),
          required("valid", &Options::valid, "what is evaluated on", changes_scores())};
      if constexpr (kTexts > 1) {
        return shared;
      } else {
        return std::tuple_cat(shared,
                              std::tuple{field("classes", &Options::classes,
                                               "number of classes; labels are 0 to classes - 1",
                                               in_range(2, 10000))});
      }
    }
    /// Refuses a file named twice in a split.
    void validate(Problems& problems) const;

    /// Paths of a split's files.
    std::vector<std::string> paths(Split split) const;
  };

  static constexpr Sketch kSketch =
      kTexts == 1 ? Sketch{.has_classes = true,
                           .path = "lra",
                           .files = "label<TAB>text, a line a sample",
                           .lines =
                               "  max_length: 1024               # bytes of each text\n"
                               "  train: {files: [train.tsv]}\n"
                               "  valid: {files: [valid.tsv]}\n"}
                  : Sketch{.has_classes = true,
                           .path = "lra",
                           .files = "LRA's files",
                           .lines =
                               "  max_length: 1024               # bytes of each text\n"
                               "  train: {files: [new_aan_pairs.train.tsv]}\n"
                               "  valid: {files: [new_aan_pairs.eval.tsv]}\n"};  ///< of `shoal new`

  explicit LraTextsSource(const Options& options) : options_(options) {}

  DataShape shape() const override;
  /// Reports a file that is in both splits.
  void check_training(Problems& problems) const override;
  std::vector<std::string> files() const override;
  /// Reads all lines once and refuses malformed ones, also those without text.
  std::unique_ptr<SampleSet> open(Split split) const override;

 private:
  Options options_;
};

using LraTextSource = LraTextsSource<1>;
using LraRetrievalSource = LraTextsSource<2>;

}  // namespace shoal
