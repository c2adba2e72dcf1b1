#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "launch/maps/gate_numbers.h"
#include "runtime/text/tokenizer.h"

namespace shoal {

/// The tokens that attended, by layer.
struct GateMaps {
  std::string title;
  std::vector<std::string> layers;  ///< layers of the gates, in forward order
  std::vector<GatedSample> samples;
  std::vector<GateNumbers> numbers;      ///< one a layer
  const Tokenizer* tokenizer = nullptr;  ///< the samples'; null: ids are shown
};

/// The bytes of a token made visible: signs for blanks, line ends and tabs; \x0f for other control
/// characters and bytes that are not UTF-8. Not escaped for markup.
std::string visible_text(std::string_view bytes);

/// Maximal number of tokens on a page, so that browsers can open it.
constexpr int64_t kMostDrawnTokens = 20'000;

struct SampleExtent {
  int64_t samples = 0, tokens = 0;
};
/// The samples' first `most` tokens, and the number of samples they belong to.
SampleExtent first_tokens(const std::vector<GatedSample>& samples,
                          int64_t most = std::numeric_limits<int64_t>::max());

/// A self-contained HTML page without scripts: tables of each layer's numbers over all samples,
/// then the first kMostDrawnTokens tokens by sample, each with the numbers of the layers in which
/// it attends.
std::string gate_page(const GateMaps& maps);

}  // namespace shoal
