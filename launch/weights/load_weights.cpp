#include "launch/weights/load_weights.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <variant>

#include "launch/data/open_split.h"
#include "launch/weights/taken_sparse_state.h"
#include "moe/moe_layer.h"
#include "parallel/checkpoint/checkpoint_load.h"
#include "parallel/gradients/weight_average.h"
#include "runtime/base/error.h"

namespace shoal {

std::string tokenizer_mismatch(const Manifest& manifest, const std::string& identity) {
  const ManifestValue* found = manifest.find_value(kDataTokenizer);
  const auto* own = found == nullptr ? nullptr : std::get_if<std::string>(&found->value);
  if (own == nullptr || identity.empty() || *own == identity) return "";
  return fmt::format(
      "data.tokenizer: the checkpoint's token ids are those of another tokenizer:\n"
      "  checkpoint: {}\n  now:        {}",
      *own, identity);
}

std::set<std::string> seeded_layers(const BuiltModel& model) {
  std::set<std::string> paths;
  for (const auto& stage : model.stages) {
    const auto layer = std::dynamic_pointer_cast<MoeLayer>(stage);
    if (layer != nullptr && layer->router().assigns_by_seed()) paths.insert(layer->path());
  }
  return paths;
}

void require_own_tokenizer(const Manifest& manifest, const std::string& identity) {
  const std::string what = tokenizer_mismatch(manifest, identity);
  if (what.empty()) return;
  throw Error(ExitCode::kMismatch, what, kTokenizerHint);
}

void require_own_seed(const Manifest& manifest, const Recipe& recipe, const BuiltModel& model) {
  const std::set<std::string> layers = seeded_layers(model);
  if (layers.empty()) return;
  const int64_t own = stored_recipe(manifest).run.seed;
  if (own == recipe.run.seed) return;
  throw Error(ExitCode::kMismatch,
              fmt::format("run.seed: the experts of {} were trained with run.seed {}; with {} the "
                          "hash router would give them other tokens",
                          *layers.begin(), own, recipe.run.seed),
              "leave run.seed out");
}

bool has_averages(const Manifest& checkpoint) {
  const ManifestValue* updates = checkpoint.find_value(WeightAverage::kUpdates);
  const auto* count = updates == nullptr ? nullptr : std::get_if<int64_t>(&updates->value);
  return count != nullptr && *count > 0;
}

std::string averaged_name(const Manifest& checkpoint, const std::string& weight) {
  const std::string average = WeightAverage::kPrefix + weight;
  const bool is_there = has_averages(checkpoint) && checkpoint.find_tensor(average) != nullptr;
  return is_there ? average : weight;
}

void load_weights(const std::string& checkpoint, ModelWeights weights, Communicator& world,
                  bool raw_weights) {
  const Manifest manifest = read_manifest(checkpoint, world);
  SourceOf same_names;
  for (const Parameter& weight : weights.list) {
    for (const std::string& name : names_of_units(weight)) same_names.emplace(name, name);
  }
  weights.sparse = taken_state(weights.sparse, same_names, manifest, checkpoint);
  load_tensors(checkpoint, manifest, std::move(weights), world, raw_weights);
}

void load_tensors(const std::string& checkpoint, const Manifest& manifest, ModelWeights weights,
                  Communicator& world, bool raw_weights) {
  for (Parameter& weight : weights.list) {
    // Of a stack all units have averages, or none has.
    const std::vector<std::string> names = names_of_units(weight);
    const bool is_averaged = !names.empty() && averaged_name(manifest, names[0]) != names[0];
    if (is_averaged && !raw_weights) weight.name = WeightAverage::kPrefix + weight.name;
  }
  load_checkpoint(checkpoint, weights, world, {.ignore_extra = true});
}

}  // namespace shoal
