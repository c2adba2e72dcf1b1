#include "runtime/data/sequences/lra_text.h"

#include <vector>

namespace shoal {
namespace {

const Registration<DataSource, LraTextSource> registered_lra_text_source{
    "lra_text", "labelled texts by their bytes, from local files"};

}  // namespace

DataShape LraTextSource::shape() const {
  return {.source = "lra_text",
          .sequence = options_.max_length,
          .vocabulary = kLraVocabulary,
          .has_lengths = true,
          .classes = options_.classes};
}

std::unique_ptr<SampleSet> LraTextSource::open(Split split) const {
  const TabbedLayout layout{.columns = {"label", "text"}, .classes = options_.classes};
  const auto tokens_of = [most = options_.max_length](const auto& columns) {
    std::vector<int64_t> tokens;
    append_bytes(columns[1], most, tokens);
    return tokens;
  };
  return open_lra_files(options_.files.paths(split), layout, tokens_of);
}

}  // namespace shoal
