#pragma once

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
  using Options = ExpertOptions<ExpertDefaults{1, 8, Activation::kSilu, false}>;
  GatedExpertBank(const Options& options, const Context& context)
      : ExpertBank(options, context, /*has_gate=*/true) {}
};

}  // namespace shoal
