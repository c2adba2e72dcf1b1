#include "launch/model/model_work.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "models/product_counts.h"

namespace shoal {
namespace {

constexpr double kForwardFlops = 2, kTrainingFlops = 6;  // a multiply-add

struct CountedBackbone {
  const ProductCounts* counts;
  bool is_trained;
};

/// By name, `backbone`; nothing if the counts of one are not known.
std::optional<std::map<std::string, CountedBackbone>> backbones_of(const Task& task) {
  std::map<std::string, CountedBackbone> found;
  const std::set<const torch::nn::Module*> untrained = untrained_modules(task);
  for (const auto& child : task.named_children()) {
    const auto* backbone = dynamic_cast<const Backbone*>(child.value().get());
    if (backbone == nullptr) continue;
    const auto* counts = dynamic_cast<const ProductCounts*>(backbone);
    if (counts == nullptr) return std::nullopt;
    found[child.key()] = {counts, !untrained.contains(backbone)};
  }
  return found;
}

/// The stage that a stack of its units' parameters belongs to; null for what is no such stack.
std::shared_ptr<MoeStage> stage_of(const Parameter& parameter, const BuiltModel& model) {
  if (!parameter.is_stacked()) return nullptr;
  for (const auto& stage : model.stages) {
    if (parameter.name.find(stage->info().name + ".") != std::string::npos) return stage;
  }
  return nullptr;
}

/// Elements of a parameter that one row is multiplied with.
double elements_of_row(const Parameter& parameter, const BuiltModel& model,
                       const std::vector<SparseLayerInfo>& sparse) {
  auto elements = static_cast<double>(parameter.tensor.numel());
  const auto layer = std::ranges::find(sparse, parameter.name, &SparseLayerInfo::name);
  if (layer != sparse.end()) elements *= layer->reached();
  const std::shared_ptr<MoeStage> stage = stage_of(parameter, model);
  if (stage == nullptr) return elements;
  const MoeStageInfo info = stage->info();
  if (parameter.name.ends_with(".values")) {  // of a memory unit, which adds up the best few
    elements *=
        static_cast<double>(info.values_per_row) / static_cast<double>(parameter.tensor.size(1));
  }
  return elements * info.routed_per_token / static_cast<double>(info.num_units);
}

}  // namespace

std::optional<ModelWork> work_of(const BuiltModel& model,
                                 const std::vector<SparseLayerInfo>& sparse) {
  const auto backbones = backbones_of(*model.task);
  if (!backbones) return std::nullopt;
  const auto* head_counts = dynamic_cast<const ProductCounts*>(model.task.get());
  const auto views = static_cast<double>(model.task->views());
  ModelWork work;
  const auto add = [&work](double multiply_adds, bool is_trained) {
    work.multiply_adds += multiply_adds;
    work.training_flops += multiply_adds * (is_trained ? kTrainingFlops : kForwardFlops);
  };
  std::set<const MoeStage*> seen;
  for (const Parameter& parameter : model.parameters) {
    // Part of SparseLayerInfo::weights.
    const bool is_low_rank = parameter.name.find(".low_rank.") != std::string::npos;
    if (parameter.matrix_dims() < 2 || is_low_rank) continue;
    const size_t dot = parameter.name.find('.');
    const auto backbone = backbones->find(parameter.name.substr(0, dot));
    double rows = 0;
    if (backbone != backbones->end()) {
      rows += backbone->second.counts->rows_of(std::string_view(parameter.name).substr(dot + 1));
    }
    if (head_counts != nullptr) rows += head_counts->rows_of(parameter.name);
    if (head_counts == nullptr && backbone == backbones->end()) rows = 1;  // a head on each view
    add(views * rows * elements_of_row(parameter, model, sparse), parameter.tensor.requires_grad());
    // The first matrix of a unit reads the rows.
    const std::shared_ptr<MoeStage> stage = stage_of(parameter, model);
    if (stage == nullptr || !seen.insert(stage.get()).second) continue;
    const int64_t width = parameter.tensor.size(parameter.name.ends_with(".keys") ? 2 : 1);
    work.routed_numbers +=
        views * rows * stage->info().routed_per_token * static_cast<double>(width);
  }
  for (const auto& [name, backbone] : *backbones) {
    add(views * backbone.counts->between_activations(), backbone.is_trained);
  }
  return work;
}

}  // namespace shoal
