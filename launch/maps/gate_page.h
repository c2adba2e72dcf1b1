#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "launch/maps/gate_numbers.h"
#include "runtime/text/tokenizer.h"

namespace shoal {

/// Which tokens attended in which layer.
struct GateMaps {
  std::string title;
  std::vector<std::string> layers;  ///< of the gates, in forward order
  std::vector<GatedSample> samples;
  std::vector<GateNumbers> numbers;      ///< one a layer
  const Tokenizer* tokenizer = nullptr;  ///< of the samples; null: ids are shown
};

/// The bytes of a token for people: blanks, line ends and tabs as signs of their own, other control
/// characters and what is not UTF-8 as \x0f. Not escaped for markup.
std::string visible_text(std::string_view bytes);

/// How many tokens a page draws, so that browsers open it.
constexpr int64_t kMostDrawnTokens = 20'000;

struct SampleExtent {
  int64_t samples = 0, tokens = 0;
};
/// The samples' first `most` tokens, and how many samples they are of.
SampleExtent first_tokens(const std::vector<GatedSample>& samples,
                          int64_t most = std::numeric_limits<int64_t>::max());

/// A page in HTML, without scripts, and without anything from elsewhere: the numbers of each layer
/// over all samples in tables, then the first kMostDrawnTokens tokens, by samples, with the numbers
/// of the layers in which they attend.
std::string gate_page(const GateMaps& maps);

}  // namespace shoal
