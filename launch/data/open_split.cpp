#include "launch/data/open_split.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/text.h"
#include "runtime/data/sample_subset.h"

namespace shoal {

OpenSplit open_split(std::shared_ptr<const DataSource> source, Split split, int64_t workers) {
  std::unique_ptr<const SampleSet> samples = source->open(split);
  OpenSplit opened{std::move(source), std::move(samples), workers};
  opened.fingerprint = opened.samples->fingerprint();
  opened.tokenizer = opened.samples->tokenizer_identity();
  return opened;
}

OpenSplit open_valid(const Recipe& recipe, std::shared_ptr<const DataSource> source,
                     int64_t workers) {
  OpenSplit split = open_split(std::move(source), Split::kValid, workers);
  if (const std::optional<int64_t> count = recipe.evaluate.samples) {
    split.drawn_from = split.samples->size();
    split.samples = SampleSubset::draw(std::move(split.samples), *count,
                                       static_cast<uint64_t>(recipe.run.seed));
  }
  return split;
}

std::vector<OpenSet> open_sets(const Recipe& recipe, const std::vector<SetSource>& sources,
                               int64_t workers) {
  std::vector<OpenSet> sets;
  for (const SetSource& set : sources) {
    try {
      sets.push_back({set.name, open_valid(recipe, set.source, workers)});
    } catch (const DataError& error) {
      throw DataError(fmt::format("evaluate.sets.{}: {}", set.name, error.what()), error.hint());
    }
  }
  return sets;
}

std::string describe_draw(const OpenSplit& split) {
  if (!split.drawn_from) return "";
  const int64_t size = split.samples->size();
  return fmt::format("{} of {}{}", size, counted(*split.drawn_from, "sample"),
                     size < *split.drawn_from ? ", drawn by run.seed (evaluate.samples)"
                                              : "; evaluate.samples asks for no fewer");
}

JobData open_data(const Recipe& recipe, const RecipeSources& sources, int64_t workers,
                  Communicator& world, Console& console) {
  JobData data{open_split(sources.data, Split::kTrain, workers),
               open_valid(recipe, sources.data, workers), open_sets(recipe, sources.sets, workers)};
  // Once, though each evaluation starts workers.
  const auto told = std::make_shared<std::set<std::string>>();
  data.train.warn = data.valid.warn = [&console, told, rank = world.rank()](const auto& line) {
    if (told->insert(line).second) console.print(fmt::format("warning: rank {}: {}", rank, line));
  };
  std::string sets;
  for (OpenSet& set : data.sets) {
    set.data.warn = data.valid.warn;
    sets += set.name + " " + set.data.fingerprint + "\n";
  }
  require_equal_on_ranks(world, {{"training data", data.train.fingerprint},
                                 {"validation data", data.valid.fingerprint},
                                 {"data of evaluate.sets", sets}});
  return data;
}

int64_t count_substituted(const SampleSet& samples, Communicator& world) {
  std::string own;
  for (const int64_t index : samples.substituted()) {
    own.append(reinterpret_cast<const char*>(&index), sizeof(index));
  }
  std::set<std::string> all;
  for (const std::string& indices : gather_text(world, own)) {
    for (size_t at = 0; at < indices.size(); at += sizeof(int64_t)) {
      all.insert(indices.substr(at, sizeof(int64_t)));
    }
  }
  return std::ssize(all);
}

LoaderSettings loader_settings(const Recipe& recipe, const OpenSplit& data, const RankGrid& grid,
                               int64_t views) {
  LoaderSettings settings;
  settings.views = views;
  settings.cut = {recipe.train.batch, recipe.train.accumulate, recipe.train.group};
  settings.rank = grid.world->rank();
  settings.world = grid.world->size();
  settings.seed = static_cast<uint64_t>(recipe.run.seed);
  settings.dtype = compute_dtype_of(recipe);
  settings.shape = data.source->shape();
  settings.images = data.source->image_transform();
  settings.prefetch = recipe.data.prefetch;
  settings.workers = recipe.data.workers.value_or(data.workers);
  if (!recipe.data.workers) settings.fewer_workers = data.warn;
  settings.device = grid.device;
  return settings;
}

}  // namespace shoal
