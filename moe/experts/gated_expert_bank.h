#pragma once

#include <cstdint>
#include <optional>

#include "moe/experts/expert_bank.h"

// D width  H hidden width  u experts on this rank
namespace shoal {

/// Experts that are gated MLPs: (act(x Wg + bg) * (x W1 + b1)) W2 + b2; with silu, SwiGLU.
///
/// Parameters, stacked by expert: `gate.weight` [u, D, H], `gate.bias` [u, H] and those of
/// ExpertBank, drawn like them. At 2/3 of the hidden width an expert has the size of a plain one.
/// Source: Shazeer 2020 (GLU variants), equation 6.
class GatedExpertBank : public ExpertBank {
 public:
  struct Options {
    int64_t count = 8;
    std::optional<int64_t> hidden;  ///< nothing: 4 D
    Activation activation = Activation::kSilu;
    bool bias = false;

    static constexpr auto fields() {
      return std::tuple{
          field("count", &Options::count, "experts over all ranks", in_range(1, kMostUnits)),
          field("hidden", &Options::hidden, "hidden width of an expert, auto: 4 times the width",
                in_range(1, kMostWidth), unset_word("auto")),
          field("activation", &Options::activation, "of the gate"),
          field("bias", &Options::bias, "whether all three layers have biases")};
    }
  };
  GatedExpertBank(const Options& options, const Context& context)
      : ExpertBank({options.count, options.hidden, options.activation, options.bias}, context,
                   /*has_gate=*/true) {}
};

}  // namespace shoal
