#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "moe/experts/expert_mlp.h"
#include "moe/experts/unit_bank.h"
#include "runtime/base/size_limits.h"
#include "runtime/kernels/bias_activation.h"
#include "runtime/module/sparse_place.h"
#include "runtime/module/weight_form.h"

// R rows on this rank  D width  H hidden width  u experts on this rank
namespace shoal {

/// Defaults of ExpertOptions, and the least number of experts, for one kind of layer.
struct ExpertDefaults {
  int64_t least_count, count;
  Activation activation;
  bool bias;
};

/// YAML recipe options of experts that are MLPs. D is the width of the tokens.
template <ExpertDefaults kDefault>
struct ExpertOptions {
  int64_t count = kDefault.count;
  std::optional<int64_t> hidden;  ///< default: 4 D
  Activation activation = kDefault.activation;
  bool bias = kDefault.bias;

  int64_t hidden_at(int64_t width) const { return hidden.value_or(4 * width); }
  /// Converts to options of a section with other defaults.
  template <ExpertDefaults kOther>
  operator ExpertOptions<kOther>() const {
    return {count, hidden, activation, bias};
  }
  static constexpr auto fields() {
    using Self = ExpertOptions;
    return std::tuple{
        field("count", &Self::count, "experts over all ranks",
              in_range(kDefault.least_count, kMostUnits)),
        field("hidden", &Self::hidden, "hidden width of an expert, auto: 4 times the width",
              in_range(1, kMostWidth), unset_word("auto")),
        field("activation", &Self::activation, "activation of an expert, or of its gate"),
        field("bias", &Self::bias, "whether an expert's layers have biases")};
  }
};

/// The experts of a MoE layer that this rank holds, as two-layer MLPs: act(x W1 + b1) W2 + b2.
///
/// Parameters, stacked by expert: `fc1.weight` [u, D, H], `fc1.bias` [u, H], `fc2.weight` [u, H,
/// D], `fc2.bias` [u, D]; if gated, also `gate.weight` and `gate.bias`, of the shapes of fc1's.
/// Initial values, unless context.inits is set: weights Xavier-uniform by the fans of one expert,
/// biases normal with standard deviation 1e-6; random numbers are keyed by the expert's global id.
class ExpertBank : public UnitBank, public HasWeightForms, public HasSparsePlaces {
 public:
  using Options = ExpertOptions<ExpertDefaults{1, 8, Activation::kGelu, true}>;
  /// `has_gate`: true for gated MLPs, (act(x Wg + bg) * (x W1 + b1)) W2 + b2.
  ExpertBank(const Options& options, const Context& context, bool has_gate = false);

  torch::Tensor forward(const torch::Tensor& rows_RD, const UnitRows& rows_u) override;
  std::vector<ForwardWeighted> split(int64_t num_parts) override;
  torch::Tensor forward_weighted(const torch::Tensor& rows_RD, const UnitRows& rows_u,
                                 const torch::Tensor& weight_R) override;
  torch::Tensor forward_local(const torch::Tensor& x_TD, const TokenRows& rows) override;
  std::optional<MlpForm> mlp_form() const override;
  const UnitPlacement& placement() const override { return placement_; }
  // For sparse training. A form is a function of a parameter, such as a permutation; products use
  // its result. Leaves: trained tensors of a form. A sparse place: a weight that may be sparse.
  bool set_form(const torch::Tensor& parameter, std::shared_ptr<const WeightForm> form) override;
  std::vector<torch::Tensor> form_leaves() const override;
  std::vector<SparsePlace> sparse_places() const override;

 private:
  /// Returns the parameters with their forms applied.
  ExpertWeights formed_weights() const;

  Activation activation_;
  UnitPlacement placement_;
  ExpertWeights weights_;
  std::array<std::shared_ptr<const WeightForm>, ExpertWeights::members().size()> forms_;
};

/// An ExpertBank of gated MLPs, with silu SwiGLU. With 2/3 of the hidden width an expert has as
/// many parameters as an ungated one. Source: Shazeer 2020 (GLU variants), equation 6.
class GatedExpertBank : public ExpertBank {
 public:
  using Options = ExpertOptions<ExpertDefaults{1, 8, Activation::kSilu, false}>;
  GatedExpertBank(const Options& options, const Context& context)
      : ExpertBank(options, context, /*has_gate=*/true) {}
};

}  // namespace shoal
