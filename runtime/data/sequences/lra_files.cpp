#include "runtime/data/sequences/lra_files.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/split_files.h"

namespace shoal {
namespace {

class LraSet final : public SampleSet {
 public:
  LraSet(const std::vector<std::string>& paths, const TabbedLayout& layout, LraTokens tokens_of)
      : paths_(paths), files_(paths, layout), tokens_of_(std::move(tokens_of)) {}

  int64_t size() const override { return files_.size(); }
  std::string fingerprint() const override { return fingerprint_of(paths_); }
  Sample read(int64_t index, int64_t /*epoch*/) const override {
    const TabbedFiles::Record record = files_.read(index);
    Sample sample;
    sample.label = record.label;
    sample.token_S = tokens_of_(record.columns);
    if (sample.token_S.empty()) throw DataError(files_.where(index) + ": the text is empty");
    return sample;
  }

 private:
  std::vector<std::string> paths_;
  TabbedFiles files_;
  LraTokens tokens_of_;
};

}  // namespace

void LraFiles::validate(Problems& problems) const {
  refuse_repeated(paths(Split::kTrain), "train.files", problems);
  refuse_repeated(paths(Split::kValid), "valid.files", problems);
}

void LraFiles::check_training(Problems& problems) const {
  refuse_shared(paths(Split::kTrain), paths(Split::kValid), problems);
}

std::vector<std::string> LraFiles::paths(Split split) const {
  return paths_in(path, (split == Split::kTrain ? train : valid).files);
}

std::unique_ptr<SampleSet> open_lra_files(const std::vector<std::string>& paths,
                                          const TabbedLayout& layout, LraTokens tokens_of) {
  return std::make_unique<LraSet>(paths, layout, std::move(tokens_of));
}

void append_bytes(std::string_view text, int64_t max_length, std::vector<int64_t>& tokens) {
  for (const char c : text.substr(0, static_cast<size_t>(max_length))) {
    tokens.push_back(int64_t{static_cast<unsigned char>(c)} + 1);
  }
}

}  // namespace shoal
