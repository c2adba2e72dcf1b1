#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "launch/recipe/recipe.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/data/data_source.h"
#include "runtime/data/loader/loader.h"

namespace shoal {

/// One opened split (training or validation) of a run's data, with its source.
struct OpenSplit {
  std::shared_ptr<const DataSource> source;
  std::unique_ptr<const SampleSet> samples;
  int64_t workers = 1;           ///< reader threads if data.workers is auto
  std::string fingerprint = {};  ///< hash that identifies the samples
  std::string tokenizer = {};    ///< SampleSet::tokenizer_identity
  /// Called with a warning if data.workers is auto and the system starts fewer threads.
  std::function<void(const std::string& line)> warn = [](const std::string&) {};
};

/// Key of OpenSplit::fingerprint in a checkpoint.
inline constexpr const char* kDataFingerprint = "data.fingerprint";
/// Key of OpenSplit::tokenizer in a checkpoint.
inline constexpr const char* kDataTokenizer = "data.tokenizer";

/// Opens a split. Throws DataError.
OpenSplit open_split(std::shared_ptr<const DataSource> source, Split split, int64_t workers = 1);

/// Number of broken samples, found by any rank so far, that others were substituted for.
/// Collective.
int64_t count_substituted(const SampleSet& samples, Communicator& world);

LoaderSettings loader_settings(const Recipe& recipe, const OpenSplit& data, const RankGrid& grid);

}  // namespace shoal
