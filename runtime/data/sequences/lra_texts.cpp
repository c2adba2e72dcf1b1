#include "runtime/data/sequences/lra_texts.h"

#include <algorithm>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/data/sequences/tabbed_files.h"
#include "runtime/data/split_files.h"

namespace shoal {
namespace {

constexpr int64_t kLraSeparator = 257;

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
    Sample sample;
    sample.label = record.label;
    for (size_t column = first_text_; column < record.columns.size(); ++column) {
      if (column > first_text_) sample.token_S.push_back(kLraSeparator);
      for (const char c : record.columns[column].substr(0, max_length_)) {
        sample.token_S.push_back(int64_t{static_cast<unsigned char>(c)} + 1);
      }
    }
    return sample;
  }

 private:
  std::vector<std::string> paths_;
  TabbedFiles files_;
  size_t first_text_;
  size_t max_length_;
};

const Registration<DataSource, LraTextSource> registered_lra_text_source{
    "lra_text", "labelled texts by their bytes, from local files"};
const Registration<DataSource, LraRetrievalSource> registered_lra_retrieval_source{
    "lra_retrieval", "pairs of texts that belong together or not, from LRA's files"};

}  // namespace

template <int64_t kTexts>
std::vector<std::string> LraTextsSource<kTexts>::Options::paths(Split split) const {
  return paths_in(path, (split == Split::kTrain ? train : valid).files);
}

template <int64_t kTexts>
void LraTextsSource<kTexts>::Options::validate(Problems& problems) const {
  refuse_repeated(paths(Split::kTrain), paths(Split::kValid), problems);
}

template <int64_t kTexts>
DataShape LraTextsSource<kTexts>::shape() const {
  return {.source = kTexts == 1 ? "lra_text" : "lra_retrieval",
          .sequence = kTexts * (options_.max_length + 1) - 1,
          .vocabulary = kLraSeparator + kTexts - 1,
          .has_lengths = true,
          .classes = options_.classes};
}

template <int64_t kTexts>
void LraTextsSource<kTexts>::check_training(Problems& problems) const {
  refuse_shared(options_.paths(Split::kTrain), options_.paths(Split::kValid), problems);
}

template <int64_t kTexts>
std::vector<std::string> LraTextsSource<kTexts>::files() const {
  return both(options_.paths(Split::kTrain), options_.paths(Split::kValid));
}

template <int64_t kTexts>
std::unique_ptr<SampleSet> LraTextsSource<kTexts>::open(Split split) const {
  TabbedLayout layout{.columns = {"label", "text"}, .classes = options_.classes};
  if (kTexts == 2) layout.columns = {"label", "id1", "id2", "text1", "text2"};
  return std::make_unique<LraTextsSet>(options_.paths(split), layout, kTexts, options_.max_length);
}

template class LraTextsSource<1>;
template class LraTextsSource<2>;

}  // namespace shoal
