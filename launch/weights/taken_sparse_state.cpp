#include "launch/weights/taken_sparse_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "parallel/checkpoint/state_list.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

bool is_permuted(const Manifest& checkpoint, const std::string& weight) {
  return checkpoint.find_tensor(Permutation::kIndexPrefix + weight) != nullptr ||
         checkpoint.find_tensor(Permutation::kSoftPrefix + weight) != nullptr;
}

/// Whether the checkpoint has a mask or scores of this weight.
bool has_cells(const Manifest& checkpoint, const std::string& weight) {
  return checkpoint.find_tensor(SparseLayer::kMaskPrefix + weight) != nullptr ||
         checkpoint.find_tensor(SoftCells::kScorePrefix + weight) != nullptr;
}

/// The first factor of the product beside a layer's weight.
std::string branch_of(const std::string& weight) {
  constexpr std::string_view kWeight = ".weight";
  if (!weight.ends_with(kWeight)) return "";
  return weight.substr(0, weight.size() - kWeight.size()) + ".low_rank.u";
}

/// Throws unless `offered` has a place for a weight's state; `source`: its name in the checkpoint.
void require_places(const std::string& weight, const std::string& source,
                    const SparseState& offered, const Manifest& checkpoint,
                    const std::string& path) {
  const auto is_of_weight = [&](const auto& form) { return matches_glob(weight, form->name()); };
  if (is_permuted(checkpoint, source) && std::ranges::none_of(offered.permutations, is_of_weight)) {
    throw Error(ExitCode::kMismatch,
                fmt::format("{}: {} is permuted, the recipe's is not", path, source),
                "use the checkpoint's sparsity.permutation and sparsity.layers");
  }
  if (checkpoint.find_tensor(SoftCells::kScorePrefix + source) != nullptr &&
      std::ranges::none_of(offered.soft_cells, is_of_weight)) {
    throw Error(
        ExitCode::kMismatch,
        fmt::format("{}: the cells of {} are not chosen yet, and {} has no cells to choose softly",
                    path, source, weight),
        "use the checkpoint's sparsity, or a later checkpoint");
  }
}

/// Throws if a weight would be taken without the product of low rank beside it.
void require_branches(const SourceOf& source_of, const Manifest& checkpoint,
                      const std::string& path) {
  for (const auto& [weight, source] : source_of) {
    const std::string branch = branch_of(source);
    if (branch.empty() || checkpoint.find_tensor(branch) == nullptr) continue;
    if (source_of.contains(branch_of(weight))) continue;
    throw Error(ExitCode::kMismatch,
                fmt::format("{}: {} has a product of low rank beside it, and would be taken "
                            "without it",
                            path, source),
                "use the sparsity of the checkpoint's recipe");
  }
}

/// The name of a sparse weight's state, such as `sparsity.mask.X`, with the checkpoint's name of X.
std::string source_name(const std::string& name, const SourceOf& source_of) {
  for (const std::string_view prefix :
       {Permutation::kIndexPrefix, Permutation::kSoftPrefix, SparseLayer::kMaskPrefix,
        SoftCells::kScorePrefix, SoftCells::kTemperaturePrefix}) {
    if (!name.starts_with(prefix)) continue;
    const auto source = source_of.find(name.substr(prefix.size()));
    if (source != source_of.end()) return std::string(prefix) + source->second;
  }
  return name;
}

}  // namespace

std::vector<std::string> names_of_units(const Parameter& parameter) {
  if (!parameter.is_stacked()) return {parameter.name};
  std::vector<std::string> names;
  for (const int64_t unit : parameter.unit_ids) names.push_back(name_of_unit(parameter.name, unit));
  return names;
}

SparseState taken_state(const SparseState& offered, const SourceOf& source_of,
                        const Manifest& checkpoint, const std::string& path) {
  for (const auto& [weight, source] : source_of) {
    require_places(weight, source, offered, checkpoint, path);
  }
  require_branches(source_of, checkpoint, path);
  // Whether the checkpoint `has` something of a matrix of this weight.
  const auto is_taken = [&](const Parameter& weight, const auto& has) {
    return std::ranges::any_of(names_of_units(weight), [&](const std::string& name) {
      const auto source = source_of.find(name);
      return source != source_of.end() && has(checkpoint, source->second);
    });
  };
  SparseState taken = offered;
  std::erase_if(taken.permutations,
                [&](const auto& form) { return !is_taken(form->weight(), is_permuted); });
  std::erase_if(taken.soft_cells,
                [&](const auto& form) { return !is_taken(form->weight(), has_cells); });
  std::erase_if(taken.masked, [&](size_t layer) {
    return !is_taken(offered.masks->layers()[layer].parameter, has_cells);
  });
  return taken;
}

void require_whole_stacks(const SparseState& taken, const std::vector<std::string>& missing) {
  const auto require_whole = [&](const Parameter& weight, std::string_view what) {
    if (!weight.is_stacked()) return;
    const auto lost = std::ranges::find_if(
        missing, [&](const std::string& name) { return matches_glob(name, weight.name); });
    if (lost == missing.end()) return;
    throw Error(ExitCode::kMismatch,
                fmt::format("model.init_from: {} would keep its random values and its {}, while "
                            "others of its stack are taken with theirs",
                            *lost, what),
                "take all experts of the layer, or none");
  };
  for (const auto& permutation : taken.permutations) require_whole(permutation->weight(), "order");
  for (const size_t layer : taken.masked) {
    require_whole(taken.masks->layers()[layer].parameter, "mask");
  }
}

std::vector<Parameter> by_source_names(SparseState& taken, const SourceOf& source_of,
                                       const Manifest& checkpoint) {
  taken.fit_to([&](const std::string& name) {
    return checkpoint.find_tensor(source_name(name, source_of)) != nullptr;
  });
  std::vector<Parameter> tensors;
  for (const auto& [entry, value] : list_state(taken).tensors) {
    tensors.push_back({source_name(entry.name, source_of), value, 0, {}, {}});
  }
  return tensors;
}

}  // namespace shoal
