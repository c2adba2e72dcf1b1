#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "launch/job/console.h"
#include "launch/recipe/recipe.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/data/data_source.h"
#include "runtime/data/loader/loader.h"

namespace shoal {

/// One opened split (training or validation) of a run's data, with its source.
struct OpenSplit {
  std::shared_ptr<const DataSource> source;
  std::unique_ptr<const SampleSet> samples;
  int64_t workers = 1;           ///< threads that read samples where data.workers is auto
  std::string fingerprint = {};  ///< SampleSet::fingerprint: hash that detects other data
  std::string tokenizer = {};    ///< SampleSet::tokenizer_identity
  /// Called with a warning if data.workers is auto and the system refuses some of the threads.
  std::function<void(const std::string& line)> warn = [](const std::string&) {};
};

/// What a job trains on and what it is evaluated on.
struct JobData {
  OpenSplit train, valid;
};

/// Name of OpenSplit::fingerprint in a checkpoint.
inline constexpr const char* kDataFingerprint = "data.fingerprint";
/// Key of OpenSplit::tokenizer in a checkpoint.
inline constexpr const char* kDataTokenizer = "data.tokenizer";

/// Opens a split. Throws DataError.
OpenSplit open_split(std::shared_ptr<const DataSource> source, Split split, int64_t workers = 1);

/// Opens both splits; `console` shows their warnings, each once. Collective. Throws DataError, and
/// as require_equal_on_ranks where the ranks' data differ.
JobData open_data(const std::shared_ptr<const DataSource>& source, int64_t workers,
                  Communicator& world, Console& console);

/// Number of different corrupt samples that any rank has read and replaced by others so far
/// (on_corrupt: skip). Collective.
int64_t count_substituted(const SampleSet& samples, Communicator& world);

/// How a split is read; `views`: of each sample, as Task::views.
LoaderSettings loader_settings(const Recipe& recipe, const OpenSplit& data, const RankGrid& grid,
                               int64_t views = 1);

}  // namespace shoal
