#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "moe/build_context.h"
#include "moe/experts/expert_bank.h"
#include "moe/experts/unit_bank.h"
#include "moe/moe_stage.h"
#include "moe/nexus/slot_router.h"
#include "runtime/base/size_limits.h"
#include "runtime/module/products.h"
#include "runtime/options/config.h"
#include "runtime/random/step_context.h"

// B images of this rank  N tokens of an image  D width  U = E + M units  s slots of a unit
namespace shoal {

/// YAML recipe options of a Nexus layer. A memory unit is a learned table of keys and values.
struct NexusOptions {
  /// Experts: at least 0, by default 12, with ReLU, without biases.
  using Experts = ExpertOptions<ExpertDefaults{0, 12, Activation::kRelu, false}>;
  struct Memory {
    int64_t count = 4;
    int64_t keys = 1024;
    int64_t k = 4;

    static constexpr auto fields() {
      return std::tuple{
          field("count", &Memory::count, "memory units over all ranks; 0: a Soft MoE layer",
                in_range(0, kMostUnits)),
          field("keys", &Memory::keys, "keys and values per unit", in_range(2, kMostWidth)),
          field("k", &Memory::k, "number of keys selected per slot", in_range(2, kMostWidth))};
    }
  };
  Experts experts;
  Memory memory;
  int64_t slots = 4;
  /// kNormalised: logits are a learned scale times cosine(token, query of a slot). kPaper: inner
  /// products over a temperature, initial values N(0, 1).
  NexusVariant variant = NexusVariant::kNormalised;
  std::optional<double> router_scale;  ///< default: √D; refused with kPaper

  static constexpr auto fields() {
    return std::tuple{
        field("experts", &NexusOptions::experts, "units that are two-layer MLPs"),
        field("memory", &NexusOptions::memory, "units that are key-value tables"),
        field("slots", &NexusOptions::slots, "slots per unit, for each image",
              in_range(1, kMostUnits)),
        field("variant", &NexusOptions::variant, "scaling of logits, queries and initial values"),
        field("router_scale", &NexusOptions::router_scale,
              "initial scale of the logits; auto: the square root of the width", above(0.0),
              unset_word("auto"), keeps_evaluation())};
  }
  void validate(Problems& problems) const;
};

/// A Nexus layer: experts (MLPs) and memory units behind one soft router; without memory units it
/// is Soft MoE (Puigcerver et al. 2024). Each unit has s slots. The router mixes an image's tokens
/// into slots (dispatch), units process their slots, outputs are mixed back into tokens (combine):
/// z = Pᵀ x, y = C unit(z), where P and C are softmaxes over tokens and over slots. Source:
/// "OneSparse: A Unified Framework for Sparse Activation Layers in Vision Models", algorithm A1.
///
/// Units 0 to E - 1 are experts, E to U - 1 memory units. They are placed on ranks together; the
/// placement rule `by_load` uses their cost per slot, since a unit's work does not depend on its
/// load. Parameters: `<path>.router.*`, `<path>.experts.*` (ExpertBank), `<path>.memory.*`
/// (MemoryBank, which counts its units from 0). Initial values of experts: He-normal fc1 and
/// LeCun-normal fc2 (variant `paper`: N(0, 1)), zero biases. The normalised variant expects the
/// output of a layer norm as input. No residual connection, balance loss, capacity, drops or
/// difference in evaluation. In statistics a unit's load is the sum of its combine weights.
class NexusLayer : public MoeStage, public CountsProducts {
 public:
  /// `width`: D; `path`: the module's path in the model. context.grid may be null for a layer that
  /// is not run. Throws ConfigError in a causal model, since a slot mixes all tokens of its image.
  NexusLayer(const NexusOptions& options, int64_t width, const std::string& path,
             const BuildContext& context);

  /// Runs the layer on this rank's images; B may be 0. Collective over the expert ranks. Padding
  /// (StepContext::length_b) gets zero and affects nothing else. There is no auxiliary loss.
  MoeOutput forward(const torch::Tensor& in_BND, const StepContext& step);
  MoeStageInfo info() const override;
  void list_products(double rows, ProductList& list) const override;
  /// Passes each later forward pass's dispatch weights to the observer, without gradients: each
  /// token's weight in each slot, [B, N, U, s], summing to 1 over N. An empty observer ends this.
  using Observer = std::function<void(const torch::Tensor& dispatch_BNUs)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

  int64_t num_experts() const { return num_experts_; }
  const UnitPlacement& placement() const { return placement_; }

 private:
  torch::Tensor run_units(const torch::Tensor& slots_uBsD) const;
  MoeStats stats(const torch::Tensor& combine_BNP, const StepContext& step) const;

  RankGrid* grid_;
  int64_t width_, num_experts_, num_slots_;
  UnitPlacement placement_;
  std::shared_ptr<SlotRouter> router_;
  Observer observer_;
  std::shared_ptr<UnitBank> experts_, memory_;  ///< null: none of the kind
};

}  // namespace shoal
