#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/data_source.h"
#include "runtime/data/sequences/tabbed_files.h"
#include "runtime/data/split_files.h"

namespace shoal {
namespace {

constexpr int64_t kLraSeparator = 257;

/// The first `most` bytes of each text as tokens, with separators between texts.
template <class Texts>
std::vector<int64_t> lra_tokens(const Texts& texts, size_t most) {
  std::vector<int64_t> tokens;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) tokens.push_back(kLraSeparator);
    for (const char c : texts[i].substr(0, most)) {
      tokens.push_back(int64_t{static_cast<unsigned char>(c)} + 1);
    }
  }
  return tokens;
}

/// Samples of the last columns of files.
class LraTextsSet final : public SampleSet {
 public:
  LraTextsSet(const std::vector<std::string>& paths, const TabbedLayout& layout, size_t num_texts,
              int64_t max_length)
      : paths_(paths),
        files_(paths, layout),
        first_text_(layout.columns.size() - num_texts),
        max_length_(static_cast<size_t>(max_length)) {
    const auto is_empty = [](std::string_view text) { return text.empty(); };
    for (int64_t i = 0; i < size(); ++i) {
      const auto columns = files_.read(i).columns;
      if (std::all_of(columns.end() - static_cast<std::ptrdiff_t>(num_texts), columns.end(),
                      is_empty)) {
        throw DataError(files_.where(i) + ": the text is empty", "leave the line out");
      }
    }
  }

  int64_t size() const override { return files_.size(); }
  std::string fingerprint() const override { return fingerprint_of(paths_); }

  Sample read(int64_t index, int64_t /*epoch*/) const override {
    const TabbedFiles::Record record = files_.read(index);
    return {.token_S = lra_tokens(std::span(record.columns).subspan(first_text_), max_length_),
            .label = record.label};
  }

 private:
  std::vector<std::string> paths_;
  TabbedFiles files_;
  size_t first_text_;
  size_t max_length_;
};

/// The section `data.train` or `data.valid`.
struct LraSplit {
  std::vector<std::string> files;

  static constexpr auto fields() {
    return std::tuple{required("files", &LraSplit::files, "files in data.path, one after the other",
                               not_empty(), at_least_one(), file_path())};
  }
};

/// Keys of `data` of these sources, below; kTexts is the number of texts of a sample, 1 or 2.
template <int64_t kTexts>
struct LraOptions {
  std::string path = ".";
  int64_t max_length = kTexts == 1 ? 4096 : 4000;
  int64_t classes = 2;
  LraSplit train;
  LraSplit valid;

  static constexpr auto fields() {
    const std::tuple shared{
        field("path", &LraOptions::path, "folder of the files, relative to the working directory",
              not_empty(), file_path(), on_resume(OnResume::kFree)),
        field("max_length", &LraOptions::max_length, "number of bytes read from each text",
              unit("tokens"), in_range(1, (1 << 20) / kTexts)),
        required("train", &LraOptions::train, "what is trained on"),
        required("valid", &LraOptions::valid, "what is evaluated on", changes_scores())};
    if constexpr (kTexts > 1) {
      return shared;
    } else {
      return std::tuple_cat(
          shared,
          std::tuple{field("classes", &LraOptions::classes,
                           "number of classes; labels are 0 to classes - 1", in_range(2, 10000))});
    }
  }
  /// Refuses a file named twice in a split.
  void validate(Problems& problems) const {
    refuse_repeated(paths(Split::kTrain), paths(Split::kValid), problems);
  }

  /// Paths of a split's files.
  std::vector<std::string> paths(Split split) const {
    return paths_in(path, (split == Split::kTrain ? train : valid).files);
  }
};

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
class LraTextsSource : public FilesSource<LraOptions<kTexts>> {
  using Files = FilesSource<LraOptions<kTexts>>;
  using Files::options_;

 public:
  using Files::Files;

  static constexpr DataSource::Sketch kSketch =
      kTexts == 1 ? DataSource::Sketch{.has_classes = true,
                                       .path = "lra",
                                       .files = "label<TAB>text, one sample per line",
                                       .lines =
                                           "  max_length: 1024               # bytes of each text\n"
                                           "  train: {files: [train.tsv]}\n"
                                           "  valid: {files: [valid.tsv]}\n"}
                  : DataSource::Sketch{
                        .has_classes = true,
                        .path = "lra",
                        .files = "LRA's files",
                        .lines =
                            "  max_length: 1024               # bytes of each text\n"
                            "  train: {files: [new_aan_pairs.train.tsv]}\n"
                            "  valid: {files: [new_aan_pairs.eval.tsv]}\n"};  ///< of `shoal new`

  DataShape shape() const override {
    return {.source = kTexts == 1 ? "lra_text" : "lra_retrieval",
            .sequence = kTexts * (options_.max_length + 1) - 1,
            .vocabulary = kLraSeparator + kTexts - 1,
            .has_lengths = true,
            .classes = options_.classes};
  }
  /// The texts alone, with a tab between two.
  std::optional<Sample> sample_of_line(std::string_view line) const override {
    const size_t tab = kTexts == 1 ? line.npos : line.find('\t');
    std::vector<std::string_view> texts{line.substr(0, tab)};
    if (tab != line.npos) texts.push_back(line.substr(tab + 1));
    Sample sample{.token_S = lra_tokens(texts, static_cast<size_t>(options_.max_length))};
    if (std::ssize(texts) == kTexts && std::ssize(sample.token_S) >= kTexts) return sample;
    throw DataError(kTexts == 1 ? "the text is empty" : "expected two texts with a tab between");
  }
  /// Reads all lines once and refuses malformed ones, also those without text.
  std::unique_ptr<SampleSet> open(Split split) const override {
    TabbedLayout layout{.columns = {"label", "text"}, .classes = options_.classes};
    if (kTexts == 2) layout.columns = {"label", "id1", "id2", "text1", "text2"};
    return std::make_unique<LraTextsSet>(options_.paths(split), layout, kTexts,
                                         options_.max_length);
  }
};

const Registration<DataSource, LraTextsSource<1>> registered_lra_text_source{
    "lra_text", "labelled texts as bytes, from local files"};
const Registration<DataSource, LraTextsSource<2>> registered_lra_retrieval_source{
    "lra_retrieval", "pairs of texts that belong together or not, from LRA's files"};

}  // namespace
}  // namespace shoal
