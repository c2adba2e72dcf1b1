#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/data/split_files.h"
#include "runtime/text/tokenize.h"
#include "runtime/text/tokenizer.h"

namespace shoal {

/// The recipe's section `data.train` or `data.valid`.
struct TextSplit {
  std::vector<std::string> files;

  static constexpr auto fields() {
    return std::tuple{required("files", &TextSplit::files,
                               "files in data.path, one after the other: text, or token caches "
                               "(*.bin)",
                               not_empty(), at_least_one(), file_path())};
  }
};

/// Keys of `data` of the source `text`.
struct TextOptions {
  std::string path = ".";
  Choice<Tokenizer> tokenizer{"bytes"};
  TextFormat format;
  int64_t sequence = 1024;
  TextSplit train;
  TextSplit valid;

  static constexpr auto fields() {
    return std::tuple{
        field("path", &TextOptions::path, "folder of the files, relative to the working directory",
              not_empty(), file_path(), on_resume(OnResume::kFree)),
        field("tokenizer", &TextOptions::tokenizer, "how text is tokenized",
              on_resume(OnResume::kFree)),  // its identity is in the data's fingerprint
        inlined(&TextOptions::format),
        field("sequence", &TextOptions::sequence, "tokens per sample", unit("tokens"),
              in_range(1, 1 << 20)),
        required("train", &TextOptions::train, "what is trained on"),
        required("valid", &TextOptions::valid, "what is evaluated on", changes_scores())};
  }
  /// Refuses a file named twice in a split, and a format that needs tokens which bytes lack.
  void validate(Problems& problems) const;

  /// Paths of a split's files.
  std::vector<std::string> paths(Split split) const;
};

/// Data source `text`: the files of a split form a stream of N tokens, and a sample is a window of
/// T = `sequence` tokens, each labelled with the next one. Divisions round down. A training epoch
/// has N / T - 1 windows, at least one, end to end from an offset below T drawn by seed and epoch.
/// Each token is a label at some offset, except the first token and, if N >= 2 T, the last N mod T.
/// Evaluation has (N - 1) / T windows from token 0 on and drops the tail. With `evaluate.stride` s,
/// windows begin s tokens apart, and all but the first score only their last s labels.
class TextSource : public FilesSource<TextOptions> {
 public:
  static constexpr Sketch kSketch{
      .path = "${env:WIKITEXT2}",
      .files = "the files of both splits",
      .lines =
          "  tokenizer: {name: bytes}       # or gpt2, with its vocab and merges\n"
          "  sequence: 256                  # tokens per sample\n"
          "  train: {files: [wiki.train.tokens]}   # text, or token caches (*.bin)\n"
          "  valid: {files: [wiki.valid.tokens]}\n",
      .is_usual = true};  ///< starter recipe of `shoal new`

  TextSource(const Options& options, const Context& context)
      : FilesSource(options), context_(context) {}

  DataShape shape() const override;
  bool has_windows() const override { return true; }
  std::shared_ptr<const Tokenizer> tokenizer() const override;
  std::vector<std::string> files(Split split) const override;
  std::unique_ptr<SampleSet> open(Split split) const override;

 private:
  Context context_;
};

}  // namespace shoal
