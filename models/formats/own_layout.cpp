#include "models/formats/own_layout.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace shoal {
namespace {

constexpr const char* kRecipe = "shoal_recipe";
constexpr const char* kStep = "shoal_step";
constexpr const char* kVersion = "shoal_version";
constexpr const char* kTokenizer = "shoal_tokenizer";

}  // namespace

std::map<std::string, std::string> to_metadata(const WeightOrigin& origin) {
  std::map<std::string, std::string> metadata{
      {"format", "pt"}, {kRecipe, origin.recipe}, {kStep, origin.step}, {kVersion, origin.shoal}};
  if (!origin.tokenizer.empty()) metadata[kTokenizer] = origin.tokenizer;
  return metadata;
}

WeightOrigin origin_of(const ForeignWeights& weights) {
  const auto text = [&](const char* key) {
    const auto found = weights.metadata().find(key);
    return found == weights.metadata().end() ? "" : found->second;
  };
  WeightOrigin origin{text(kRecipe), text(kStep), text(kVersion), text(kTokenizer)};
  if (!origin.recipe.empty()) return origin;
  throw Error(ExitCode::kMismatch,
              fmt::format("'{}': its metadata have no {}, as an export with --to {} has",
                          weights.path(), kRecipe, kOwnLayout),
              "name the format of the program that wrote it");
}

std::vector<WeightName> own_names(const StateList& model) {
  std::vector<WeightName> names;
  for (const StateEntry& item : model.tensors) {
    names.push_back({item.entry.name, item.entry.name});
  }
  return names;
}

}  // namespace shoal
