#include "runtime/data/sequences/lra_retrieval.h"

#include <vector>

namespace shoal {
namespace {

const Registration<DataSource, LraRetrievalSource> registered_lra_retrieval_source{
    "lra_retrieval", "pairs of texts that belong together or not, from LRA's files"};

}  // namespace

DataShape LraRetrievalSource::shape() const {
  return {.source = "lra_retrieval",
          .sequence = 2 * options_.max_length + 1,
          .vocabulary = kLraVocabulary + 1,
          .has_lengths = true,
          .classes = 2};
}

std::unique_ptr<SampleSet> LraRetrievalSource::open(Split split) const {
  const TabbedLayout layout{.columns = {"label", "id1", "id2", "text1", "text2"}};
  const auto tokens_of = [most = options_.max_length](const auto& columns) {
    std::vector<int64_t> tokens;
    append_bytes(columns[3], most, tokens);
    tokens.push_back(kSeparator);
    append_bytes(columns[4], most, tokens);
    return tokens;
  };
  return open_lra_files(options_.files.paths(split), layout, tokens_of);
}

}  // namespace shoal
