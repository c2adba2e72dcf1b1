#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "launch/maps/gate_numbers.h"
#include "launch/pages/page.h"
#include "runtime/text/tokenizer.h"

namespace shoal {

/// Contents of a page on token gates (HSPMN v2.1: a gate decides which tokens attend in a layer).
struct GateMaps {
  std::string title;
  std::vector<std::string> layers;  ///< names of the gates' layers, in forward order
  std::vector<GatedSample> samples;
  std::vector<GateNumbers> numbers;      ///< one per layer
  const Tokenizer* tokenizer = nullptr;  ///< decodes the samples; null: the page shows token ids
};

/// Makes a token's bytes visible: blanks, line ends and tabs become symbols, other control
/// characters and invalid UTF-8 escapes such as \x0f. Does not escape markup.
std::string visible_text(std::string_view bytes);

/// Maximum number of tokens on a page, so that browsers can open it.
constexpr int64_t kMostDrawnTokens = 20'000;

struct SampleExtent {
  int64_t samples = 0, tokens = 0;
};
/// Numbers of samples and tokens within the first `most` tokens of all; a cut sample counts as one.
SampleExtent first_tokens(const std::vector<GatedSample>& samples,
                          int64_t most = std::numeric_limits<int64_t>::max());

/// Tables with each layer's statistics over all samples, then the first kMostDrawnTokens tokens by
/// sample, each with the layers in which it attends.
Page gate_page(const GateMaps& maps);

}  // namespace shoal
