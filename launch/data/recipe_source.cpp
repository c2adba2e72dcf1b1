#include "launch/data/recipe_source.h"

#include <fmt/format.h>

#include <optional>

#include "launch/job/launch_info.h"
#include "runtime/base/error.h"

namespace shoal {

std::shared_ptr<const DataSource> make_source(const Recipe& recipe,
                                              const config::Environment& environment) {
  return Registry<DataSource>::create(recipe.data.source,
                                      {.seed = static_cast<uint64_t>(recipe.run.seed),
                                       .evaluation_stride = recipe.evaluate.stride,
                                       .cache_folder = cache_folder(environment)});
}

std::vector<SetSource> make_set_sources(const Recipe& recipe, const DataSource& data,
                                        const config::Environment& environment) {
  std::vector<SetSource> sources;
  for (const auto& [name, options] : recipe.evaluate.sets) {
    Recipe other = recipe;
    other.data = options;
    sources.push_back({name, make_source(other, environment)});
    const DataShape shape = sources.back().source->shape(), model = data.shape();
    const std::string found = shape.text(), wanted = model.text();
    // Classes that are not known yet are compared when the data is there.
    if (found == wanted || shape.has_unknown_classes || model.has_unknown_classes) continue;
    throw ConfigError(
        fmt::format("evaluate.sets.{}: {}; the model is made for {}", name, found, wanted));
  }
  return sources;
}

void check_stride(const Recipe& recipe, const DataSource& source) {
  const std::optional<int64_t> stride = recipe.evaluate.stride;
  if (!stride) return;
  const DataShape data = source.shape();
  if (!source.has_windows()) {
    throw ConfigError(fmt::format(
        "evaluate.stride: the samples of data.source {} are not windows of a text; leave it out",
        data.source));
  }
  if (*stride > data.sequence) {
    throw ConfigError(
        fmt::format("evaluate.stride: {} would leave tokens out, as windows have {}; "
                    "at most data.sequence",
                    *stride, data.sequence));
  }
}

}  // namespace shoal
