#include "launch/model/model_work.h"

#include <algorithm>
#include <compare>
#include <limits>
#include <set>
#include <string_view>

#include "models/product_counts.h"

namespace shoal {
namespace {

constexpr double kProductFlops = 2;  // a multiply-add

/// Where a product stands in the forward pass.
struct ProductPlace {
  int64_t section;  ///< ProductCounts::place_of
  /// Parameters of a block itself, such as scales of its branches, are applied behind its layers.
  bool is_behind_layers = false;
  size_t index = 0;  ///< in the order of registration
  auto operator<=>(const ProductPlace&) const = default;
};

constexpr int64_t kHeadSection = std::numeric_limits<int64_t>::max();

struct CountedBackbone {
  const ProductCounts* counts;
  std::optional<ProductPlace> first_trained = {};  ///< nothing: none of its parameters is
};

using CountedBackbones = std::map<std::string, CountedBackbone, std::less<>>;

/// By name, `backbone`; nothing if the counts of one are not known.
std::optional<CountedBackbones> backbones_of(const Task& task) {
  CountedBackbones found;
  for (const auto& child : task.named_children()) {
    const auto* backbone = dynamic_cast<const Backbone*>(child.value().get());
    if (backbone == nullptr) continue;
    const auto* counts = dynamic_cast<const ProductCounts*>(backbone);
    if (counts == nullptr) return std::nullopt;
    found[child.key()].counts = counts;
  }
  return found;
}

/// Whether the parameter is a block's own: `blocks.3.gamma`.
bool is_of_block_itself(std::string_view name) {
  return name.starts_with("blocks.") && std::ranges::count(name, '.') == 2;
}

/// The parameters of a model as its products meet them.
class WorkCount {
 public:
  WorkCount(const BuiltModel& model, CountedBackbones backbones,
            const std::vector<SparseLayerInfo>& sparse)
      : model_(model),
        backbones_(std::move(backbones)),
        sparse_(sparse),
        head_(dynamic_cast<const ProductCounts*>(model.task.get())),
        views_(static_cast<double>(model.task->views())) {
    for (const torch::nn::Module* module : untrained_modules(*model.task)) {
      for (const torch::Tensor& parameter : module->parameters(/*recurse=*/false)) {
        untrained_.insert(parameter.unsafeGetTensorImpl());
      }
    }
    find_first_trained();
  }

  ModelWork count() {
    for (size_t index = 0; index < model_.parameters.size(); ++index) {
      const Parameter& parameter = model_.parameters[index];
      // Part of SparseLayerInfo::weights.
      const bool is_low_rank = parameter.name.find(".low_rank.") != std::string::npos;
      if (parameter.matrix_dims() >= 2 && !is_low_rank) add_parameter(parameter, index);
    }
    for (const auto& [name, backbone] : backbones_) {
      for (const ActivationProducts& products : backbone.counts->between_activations()) {
        add_between_activations(name, backbone, products);
      }
    }
    return work_;
  }

 private:
  const BuiltModel& model_;
  CountedBackbones backbones_;
  const std::vector<SparseLayerInfo>& sparse_;
  const ProductCounts* head_;  ///< null: a task without counts of its own
  double views_;
  std::set<const void*> untrained_;            ///< parameters that no gradient reaches
  std::optional<ProductPlace> first_trained_;  ///< for the head: of all backbones and of the task
  std::set<const MoeStage*> seen_;
  ModelWork work_;

  /// The backbone of a parameter and the parameter's name in it; null for others.
  std::pair<CountedBackbone*, std::string_view> find_backbone(const std::string& name) {
    const size_t dot = name.find('.');
    const auto found = backbones_.find(std::string_view(name).substr(0, dot));
    if (found == backbones_.end()) return {nullptr, {}};
    return {&found->second, std::string_view(name).substr(dot + 1)};
  }

  static ProductPlace place_in(const CountedBackbone& backbone, std::string_view name,
                               size_t index) {
    return {backbone.counts->place_of(name), is_of_block_itself(name), index};
  }

  bool is_reached(const Parameter& parameter) const {
    return !untrained_.contains(parameter.tensor.unsafeGetTensorImpl());
  }

  void find_first_trained() {
    const auto lower = [](std::optional<ProductPlace>& first, const ProductPlace& place) {
      if (!first || place < *first) first = place;
    };
    for (size_t index = 0; index < model_.parameters.size(); ++index) {
      const Parameter& parameter = model_.parameters[index];
      if (!parameter.tensor.requires_grad() || !is_reached(parameter)) continue;
      const auto [backbone, name] = find_backbone(parameter.name);
      if (backbone == nullptr) {
        lower(first_trained_, {kHeadSection, false, index});
        continue;
      }
      const ProductPlace place = place_in(*backbone, name, index);
      lower(backbone->first_trained, place);
      lower(first_trained_, place);
    }
  }

  /// FLOPs of a multiply-add of this parameter.
  double flops(const Parameter& parameter, const ProductPlace& place,
               const std::optional<ProductPlace>& first_trained) const {
    const bool has_gradient = parameter.tensor.requires_grad();
    const bool passes_gradient = is_reached(parameter) && first_trained && *first_trained < place;
    return kProductFlops * (1 + (has_gradient ? 1 : 0) + (passes_gradient ? 1 : 0));
  }

  /// Elements of a parameter that one row is multiplied with.
  double elements_of_row(const Parameter& parameter, const MoeStage* stage) const {
    auto elements = static_cast<double>(parameter.tensor.numel());
    const auto layer = std::ranges::find(sparse_, parameter.name, &SparseLayerInfo::name);
    if (layer != sparse_.end()) elements *= layer->reached();
    if (stage == nullptr) return elements;
    const MoeStageInfo info = stage->info();
    if (parameter.name.ends_with(".values")) {  // of a memory unit, which adds up the best few
      elements *=
          static_cast<double>(info.values_per_row) / static_cast<double>(parameter.tensor.size(1));
    }
    return elements * info.routed_per_token / static_cast<double>(info.num_units);
  }

  void add_parameter(const Parameter& parameter, size_t index) {
    const auto [backbone, name] = find_backbone(parameter.name);
    const std::shared_ptr<MoeStage> stage = stage_of(parameter, model_);
    const double of_row = views_ * elements_of_row(parameter, stage.get());
    const auto add = [&](double rows, const ProductPlace& place,
                         const std::optional<ProductPlace>& first) {
      const double training = rows * of_row * flops(parameter, place, first);
      work_.multiply_adds += rows * of_row;
      work_.training_flops += training;
      if (stage) work_.routed_training_flops[stage->path()] += training;
    };
    const double rows = backbone == nullptr ? 0 : backbone->counts->rows_of(name);
    if (backbone != nullptr) {
      add(rows, place_in(*backbone, name, index), backbone->first_trained);
    }
    const double default_rows = backbone == nullptr ? 1 : 0;  // a head on each view
    add(head_ == nullptr ? default_rows : head_->rows_of(parameter.name),
        {kHeadSection, false, index}, first_trained_);
    // The first matrix of a unit reads the rows.
    if (!stage || !seen_.insert(stage.get()).second) return;
    const int64_t width = parameter.tensor.size(parameter.name.ends_with(".keys") ? 2 : 1);
    work_.routed_numbers +=
        views_ * rows * stage->info().routed_per_token * static_cast<double>(width);
  }

  void add_between_activations(const std::string& name, const CountedBackbone& backbone,
                               const ActivationProducts& products) {
    const std::string behind = name + "." + products.behind;
    std::optional<ProductPlace> last;
    for (size_t index = 0; index < model_.parameters.size(); ++index) {
      const std::string& parameter = model_.parameters[index].name;
      if (!parameter.starts_with(behind)) continue;
      last = std::max(last,
                      std::optional(place_in(
                          backbone, std::string_view(parameter).substr(name.size() + 1), index)));
    }
    TORCH_CHECK(last, "no parameter is called ", behind);
    const bool has_gradient = backbone.first_trained && *backbone.first_trained <= *last;
    work_.multiply_adds += views_ * products.multiply_adds;
    work_.training_flops +=
        views_ * products.multiply_adds * kProductFlops * (has_gradient ? 3 : 1);
  }
};

}  // namespace

std::optional<ModelWork> work_of(const BuiltModel& model,
                                 const std::vector<SparseLayerInfo>& sparse) {
  std::optional<CountedBackbones> backbones = backbones_of(*model.task);
  if (!backbones) return std::nullopt;
  return WorkCount(model, std::move(*backbones), sparse).count();
}

}  // namespace shoal
