#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/data/data_source.h"
#include "runtime/data/drawn_samples.h"
#include "runtime/data/sequences/listops_expression.h"
#include "runtime/data/sequences/tabbed_files.h"
#include "runtime/data/split_files.h"

namespace shoal {
namespace {

constexpr int64_t kListOpsValues = 10;

struct ListOpsSplit {
  std::optional<int64_t> samples;
  std::optional<std::vector<std::string>> files;

  static constexpr auto fields() {
    return std::tuple{
        field("samples", &ListOpsSplit::samples,
              "number of samples; auto = LRA's 96000 for training and 2000 for validation",
              unset_word("auto"), in_range(1, 1e12)),
        field("files", &ListOpsSplit::files,
              "LRA's files (basic_train.tsv) in data.path, read whole instead of drawing samples",
              unset_word("none"), not_empty(), at_least_one(), file_path())};
  }
  /// Refuses `samples` together with `files`.
  void validate(Problems& problems) const {
    if (!samples || !files) return;
    problems.add(
        "samples",
        "counts what is drawn, and files are read whole; set it to auto, or files to none");
  }
};

struct ListOpsOptions {
  ListOpsRule rule;
  int64_t seed = 0;
  std::string path = ".";
  ListOpsSplit train;
  ListOpsSplit valid;

  static constexpr auto fields() {
    return std::tuple{inlined(&ListOpsOptions::rule),
                      field("seed", &ListOpsOptions::seed,
                            "seed of the expressions, independent of run.seed", at_least(0)),
                      field("path", &ListOpsOptions::path,
                            "folder of the files, relative to the working directory", not_empty(),
                            file_path(), on_resume(OnResume::kFree)),
                      field("train", &ListOpsOptions::train, "what is trained on"),
                      field("valid", &ListOpsOptions::valid,
                            "what is evaluated on; if drawn, never an expression of the training",
                            changes_scores())};
  }
  /// Refuses a file named twice and, where a split is drawn, a rule that accepts too few draws.
  void validate(Problems& problems) const {
    if (!train.files || !valid.files) rule.check_drawing(problems, "");
    refuse_repeated(paths(Split::kTrain), paths(Split::kValid), problems);
  }

  /// Paths of a split's files; empty if it is drawn.
  std::vector<std::string> paths(Split split) const {
    const auto& files = split == Split::kTrain ? train.files : valid.files;
    return files ? paths_in(path, *files) : std::vector<std::string>{};
  }
};

class DrawnListOps final : public SampleSet {
 public:
  DrawnListOps(const ListOpsOptions& options, Split split)
      : rule_(options.rule),
        split_(split),
        size_(split == Split::kTrain ? options.train.samples.value_or(96000)
                                     : options.valid.samples.value_or(2000)),
        stream_(drawn_stream(options.seed, "listops", split)) {}

  int64_t size() const override { return size_; }
  Sample read(int64_t index, int64_t /*epoch*/) const override {
    ListOpsExpression expression =
        draw_expression(rule_, split_, stream_, static_cast<uint64_t>(index), "data");
    Sample sample;
    sample.token_S = std::move(expression.tokens);
    sample.label = expression.value;
    return sample;
  }

 private:
  ListOpsRule rule_;
  Split split_;
  int64_t size_;
  Stream stream_;
};

/// The id of a word of LRA's files; 0 for a parenthesis, -1 for an unknown one.
int64_t id_of_word(std::string_view word) {
  if (word.size() == 1 && word[0] >= '0' && word[0] <= '9') return kListOpsDigit + (word[0] - '0');
  constexpr std::array<std::pair<std::string_view, int64_t>, 7> kWords{{{"(", 0},
                                                                        {")", 0},
                                                                        {"[MIN", kListOpsMin},
                                                                        {"[MAX", kListOpsMax},
                                                                        {"[MED", kListOpsMed},
                                                                        {"[SM", kListOpsSumMod},
                                                                        {"]", kListOpsClose}}};
  for (const auto& [known, id] : kWords) {
    if (known == word) return id;
  }
  return -1;
}

/// The tokens of a line, at most `most`. Throws DataError, which begins with place().
template <class Place>
std::vector<int64_t> listops_tokens(std::string_view line, int64_t most, const Place& place) {
  std::vector<int64_t> tokens;
  std::string_view rest = line;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    if (word.empty()) continue;
    const int64_t id = id_of_word(word);
    if (id < 0) {
      throw DataError(fmt::format("{}no operator, bracket or digit at byte {} of the line", place(),
                                  word.data() - line.data()),
                      "the file is damaged or is not LRA's");
    }
    if (id > 0) tokens.push_back(id);
  }
  const auto length = std::ssize(tokens);
  if (length == 0 || length > most) {
    throw DataError(fmt::format("{}{}, expected 1 to {}", place(), counted(length, "token"), most),
                    "raise data.max_length");
  }
  return tokens;
}

class ListOpsFiles final : public SampleSet {
 public:
  ListOpsFiles(const std::vector<std::string>& paths, int64_t max_length)
      : paths_(paths),
        files_(paths, {.columns = {"Source", "Target"},
                       .label_column = 1,
                       .classes = kListOpsValues,
                       .has_header = true}),
        max_length_(max_length) {
    for (int64_t i = 0; i < size(); ++i) read(i, 0);  // refuses a bad record now, not in training
  }

  int64_t size() const override { return files_.size(); }
  std::string fingerprint() const override { return fingerprint_of(paths_); }

  Sample read(int64_t index, int64_t /*epoch*/) const override {
    const TabbedFiles::Record record = files_.read(index);
    const auto place = [&] { return files_.where(index) + ": "; };
    return {.token_S = listops_tokens(record.columns[0], max_length_, place),
            .label = record.label};
  }

 private:
  std::vector<std::string> paths_;
  TabbedFiles files_;
  int64_t max_length_;
};

/// Data source `listops`, the task ListOps of the Long Range Arena (LRA): nested MIN, MAX, MED
/// (median) and SM (sum modulo 10) of digits; the label is the value. Expressions are drawn at
/// random, or read from the files that LRA's generator writes, `Source<TAB>Target`. Tokens are
/// digits, operators with their opening brackets, and closing brackets; parentheses are left out.
class ListOpsSource : public FilesSource<ListOpsOptions> {
 public:
  using FilesSource::FilesSource;

  static constexpr Sketch kSketch{
      .has_classes = true,
      .lines =
          "  min_length: 3\n"
          "  max_length: 64                 # 2000 in the Long Range Arena\n"
          "  max_depth: 3\n"
          "  max_args: 5\n"};  ///< starter recipe of `shoal new`

  DataShape shape() const override {
    return {.source = "listops",
            .sequence = options_.rule.max_length,
            .vocabulary = kListOpsVocabulary,
            .has_lengths = true,
            .classes = kListOpsValues};
  }
  /// An expression, as in the column Source of LRA's files.
  std::optional<Sample> sample_of_line(std::string_view line) const override {
    return Sample{.token_S =
                      listops_tokens(line, options_.rule.max_length, [] { return std::string(); })};
  }
  /// Reports a file in both splits, or one split from files and the other drawn: they may overlap.
  void check_training(Problems& problems) const override {
    if (options_.train.files.has_value() != options_.valid.files.has_value()) {
      problems.add(
          options_.train.files ? "valid.files" : "train.files",
          "the other split's files may hold what is drawn here; name files of both, or none");
    }
    FilesSource::check_training(problems);
  }
  std::unique_ptr<SampleSet> open(Split split) const override {
    const std::vector<std::string> paths = options_.paths(split);
    if (paths.empty()) return std::make_unique<DrawnListOps>(options_, split);
    return std::make_unique<ListOpsFiles>(paths, options_.rule.max_length);
  }
};

const Registration<DataSource, ListOpsSource> registered_listops_source{
    "listops", "nested operators on lists of digits, classified by their value; needs no files"};

}  // namespace
}  // namespace shoal
