#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "moe/experts/expert_mlp.h"
#include "moe/experts/unit_bank.h"
#include "runtime/base/size_limits.h"
#include "runtime/kernels/bias_activation.h"

// R rows on this rank  D width  H hidden width  u experts on this rank
namespace shoal {

/// Standard deviation of an expert's first biases.
inline constexpr double kExpertBiasStdDev = 1e-6;

/// Experts that are two-layer MLPs: act(x W1 + b1) W2 + b2.
///
/// Parameters, stacked by expert: `fc1.weight` [u, D, H], `fc1.bias` [u, H], `fc2.weight` [u, H,
/// D], `fc2.bias` [u, D], with a gate also `gate.weight` and `gate.bias` as fc1's. Unless told
/// otherwise weights are Xavier-uniform by the fans of one expert, biases normal with standard
/// deviation 1e-6; each expert has draws of its own, keyed by its global id.
class ExpertBank : public UnitBank {
 public:
  struct Options {
    int64_t count = 8;
    std::optional<int64_t> hidden;  ///< nothing: 4 D
    Activation activation = Activation::kGelu;
    bool bias = true;

    int64_t hidden_at(int64_t width) const { return hidden.value_or(4 * width); }
    static constexpr auto fields() {
      return std::tuple{
          field("count", &Options::count, "experts over all ranks", in_range(1, kMostUnits)),
          field("hidden", &Options::hidden, "hidden width of an expert, auto: 4 times the width",
                in_range(1, kMostWidth), unset_word("auto")),
          field("activation", &Options::activation, "between an expert's two layers"),
          field("bias", &Options::bias, "whether both layers have biases")};
    }
  };
  /// First values; the gate is drawn as fc1.
  struct Inits {
    Init fc1_weight, fc2_weight, bias;
  };
  /// With a gate the units are those of GatedExpertBank.
  ExpertBank(const Options& options, const Context& context, bool has_gate = false);
  ExpertBank(const Options& options, const Context& context, const Inits& inits,
             bool has_gate = false);

  torch::Tensor forward(const torch::Tensor& rows_RD, const UnitRows& rows_u) override;
  /// The gradients of all parts are written into one stack.
  std::vector<Part> parts(int64_t num_parts) override;
  /// This and `visit` keep less for the backward pass than their steps one by one.
  torch::Tensor weighted(const torch::Tensor& rows_RD, const UnitRows& rows_u,
                         const torch::Tensor& weight_R) override;
  torch::Tensor visit(const torch::Tensor& x_TD, const TokenRows& rows) override;
  const UnitPlacement& placement() const override { return placement_; }

 private:
  Activation activation_;
  UnitPlacement placement_;
  ExpertWeights weights_;
};

}  // namespace shoal
