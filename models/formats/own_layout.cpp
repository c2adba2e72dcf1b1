#include "models/formats/own_layout.h"

#include <fmt/format.h>

#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

constexpr const char* kRecipe = "shoal_recipe";
constexpr const char* kStep = "shoal_step";
constexpr const char* kVersion = "shoal_version";
constexpr const char* kTokenizer = "shoal_tokenizer";

}  // namespace

std::map<std::string, std::string> to_metadata(const WeightOrigin& origin) {
  std::map<std::string, std::string> metadata{{"format", "pt"},
                                              {kRecipe, origin.recipe},
                                              {kStep, std::to_string(origin.step)},
                                              {kVersion, origin.shoal}};
  if (!origin.tokenizer.empty()) metadata[kTokenizer] = origin.tokenizer;
  return metadata;
}

WeightOrigin origin_of(const ForeignWeights& weights) {
  const auto text = [&](const char* key) {
    const auto found = weights.metadata().find(key);
    return found == weights.metadata().end() ? "" : found->second;
  };
  const std::string written = text(kStep);
  const std::optional<int64_t> step = parse_digits(written);
  WeightOrigin origin{text(kRecipe), step.value_or(0), text(kVersion), text(kTokenizer)};
  if (origin.recipe.empty()) {
    throw Error(ExitCode::kMismatch,
                fmt::format("'{}': its metadata have no {}, as an export with --to {} has",
                            weights.path(), kRecipe, kOwnLayout),
                "name the format of the program that wrote it");
  }
  if (!step) {
    throw CheckpointError(fmt::format("'{}': {} in its metadata is '{}', expected a step",
                                      weights.path(), kStep, written));
  }
  return origin;
}

std::vector<WeightName> own_names(const StateList& model) {
  std::vector<WeightName> names;
  for (const StateEntry& item : model.tensors) {
    names.push_back({item.entry.name, item.entry.name});
  }
  return names;
}

}  // namespace shoal
