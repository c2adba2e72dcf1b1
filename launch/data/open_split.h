#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/data/recipe_source.h"
#include "launch/job/console.h"
#include "launch/recipe/recipe.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/data/data_source.h"
#include "runtime/data/loader/loader.h"

namespace shoal {

/// One split of the data, training or validation, with its files opened.
struct OpenSplit {
  std::shared_ptr<const DataSource> source;
  std::unique_ptr<const SampleSet> samples;
  int64_t workers = 1;           ///< threads that read samples if data.workers is auto
  std::string fingerprint = {};  ///< names, sizes and a hash of the files; "": no files
  std::string tokenizer = {};    ///< identity of the tokenizer that made the ids; "": unknown
  /// Samples before evaluate.samples drew some of them; unset without that key.
  std::optional<int64_t> drawn_from = {};
  /// Called with a warning if data.workers is auto and the system refuses some of the threads.
  std::function<void(const std::string& line)> warn = [](const std::string&) {};
};

/// A further validation set (evaluate.sets) with its files opened.
struct OpenSet {
  std::string name;
  OpenSplit data;
};

/// The data of a training run.
struct JobData {
  OpenSplit train, valid;
  std::vector<OpenSet> sets = {};
};

/// The sources of a recipe, `data` and evaluate.sets.
struct RecipeSources {
  std::shared_ptr<const DataSource> data;
  std::vector<SetSource> sets = {};
};

/// Name under which a checkpoint stores the fingerprint of data.train, which a resume compares.
inline constexpr const char* kDataFingerprint = "data.fingerprint";
/// Name under which a checkpoint stores OpenSplit::tokenizer.
inline constexpr const char* kDataTokenizer = "data.tokenizer";

/// Opens the files of a split. `workers`: threads that read samples if recipe key data.workers is
/// auto, a number that choose_workers (launch_info.h) computes. Throws DataError.
OpenSplit open_split(std::shared_ptr<const DataSource> source, Split split, int64_t workers = 1);

/// Opens the validation split as evaluations read it, with evaluate.samples of its samples.
OpenSplit open_valid(const Recipe& recipe, std::shared_ptr<const DataSource> source,
                     int64_t workers = 1);
/// Opens the recipe's further validation sets as open_valid does. A DataError names the set.
std::vector<OpenSet> open_sets(const Recipe& recipe, const std::vector<SetSource>& sources,
                               int64_t workers = 1);

/// Describes the effect of evaluate.samples on a split in a line; "" without that key.
std::string describe_draw(const OpenSplit& split);

/// Opens all splits, with `workers` as in open_split. `console` shows each of their warnings once.
/// Collective. Throws DataError, and Error (exit 14) on every rank if the ranks' data differ.
JobData open_data(const Recipe& recipe, const RecipeSources& sources, int64_t workers,
                  Communicator& world, Console& console);

/// Number of distinct corrupt samples replaced so far on any rank (on_corrupt: skip). Collective.
int64_t count_substituted(const SampleSet& samples, Communicator& world);

/// How this rank reads its part of a split: with data.workers threads, or with OpenSplit::workers
/// if that key is auto. `views`: augmented copies of each training image.
LoaderSettings loader_settings(const Recipe& recipe, const OpenSplit& data, const RankGrid& grid,
                               int64_t views = 1);

}  // namespace shoal
