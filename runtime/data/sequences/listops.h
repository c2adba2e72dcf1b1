#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/data/data_source.h"
#include "runtime/data/sequences/listops_expression.h"

namespace shoal {

/// Data source `listops`, the task ListOps of the Long Range Arena (LRA): nested MIN, MAX, MED
/// (median) and SM (sum modulo 10) of digits; the label is the value. Expressions are drawn at
/// random, or read from the files that LRA's generator writes, `Source<TAB>Target`. Tokens are
/// digits, operators with their opening brackets, and closing brackets; parentheses are left out.
class ListOpsSource : public DataSource {
 public:
  struct SplitOptions {
    std::optional<int64_t> samples;
    std::optional<std::vector<std::string>> files;

    static constexpr auto fields() {
      return std::tuple{
          field("samples", &SplitOptions::samples,
                "samples that are drawn; auto = LRA's 96000 to train on, 2000 to evaluate on",
                unset_word("auto"), in_range(1, 1e12)),
          field("files", &SplitOptions::files,
                "LRA's files (basic_train.tsv) in data.path, read whole instead of drawing samples",
                unset_word("none"), not_empty(), at_least_one(), file_path())};
    }
    /// Refuses `samples` together with `files`.
    void validate(Problems& problems) const;
  };
  struct Options {
    ListOpsRule rule;
    int64_t seed = 0;
    std::string path = ".";
    SplitOptions train;
    SplitOptions valid;

    static constexpr auto fields() {
      return std::tuple{
          inlined(&Options::rule),
          field("seed", &Options::seed, "of the expressions; run.seed leaves them alone",
                at_least(0)),
          field("path", &Options::path, "folder of the files, relative to the working directory",
                not_empty(), file_path(), on_resume(OnResume::kFree)),
          field("train", &Options::train, "what is trained on"),
          field("valid", &Options::valid,
                "what is evaluated on; if drawn, never an expression of the training",
                changes_scores())};
    }
    /// Refuses a file named twice and, where a split is drawn, a rule that accepts too few draws.
    void validate(Problems& problems) const;

    /// Paths of a split's files; empty if it is drawn.
    std::vector<std::string> paths(Split split) const;
  };

  static constexpr Sketch kSketch{
      .has_classes = true,
      .lines =
          "  min_length: 3\n"
          "  max_length: 64                 # 2000 in the Long Range Arena\n"
          "  max_depth: 3\n"
          "  max_args: 5\n"};  ///< starter recipe of `shoal new`

  explicit ListOpsSource(const Options& options) : options_(options) {}

  DataShape shape() const override;
  /// Reports a file in both splits, or one split from files and the other drawn: they may overlap.
  void check_training(Problems& problems) const override;
  std::vector<std::string> files() const override;
  std::unique_ptr<SampleSet> open(Split split) const override;

 private:
  Options options_;
};

}  // namespace shoal
