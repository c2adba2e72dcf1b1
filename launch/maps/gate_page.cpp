#include "launch/maps/gate_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "runtime/base/utf8.h"

namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

std::string share_text(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f} %", *share * 100) : "-";
}

std::string nats_text(const std::optional<double>& nats) {
  return nats ? fmt::format("{:.4f}", *nats) : "-";
}

void add_number_tables(Page& page, const GateMaps& maps, bool has_labels) {
  CaptionedTable numbers{"Layers", {{"layer", "attending", "I(gate; token id), nats"}}};
  CaptionedTable bins{"Share attending in each sixteenth of the context", {{"layer"}}};
  if (has_labels) {
    numbers.rows[0].insert(numbers.rows[0].end(),
                           {"attending of the labelled", "I(gate; labelled), nats"});
  }
  for (int64_t bin = 1; bin <= GateNumbers::kPositionBins; ++bin) {
    bins.rows[0].push_back(std::to_string(bin));
  }
  for (size_t i = 0; i < maps.layers.size(); ++i) {
    const GateNumbers& gate = maps.numbers[i];
    const std::string name = fmt::format("{}: {}", i + 1, maps.layers[i]);
    std::vector<std::string>& row = numbers.rows.emplace_back(
        std::vector{name, share_text(gate.rate), nats_text(gate.token_information)});
    if (has_labels) {
      row.push_back(share_text(gate.labelled_rate));
      row.push_back(nats_text(gate.label_information));
    }
    std::vector<std::string>& shares = bins.rows.emplace_back(std::vector{name});
    for (const auto& share : gate.rate_by_position) shares.push_back(share_text(share));
  }
  page.add_table(numbers);
  page.add_table(bins);
}

/// The first `shown` tokens of a sample, and for each layer a digit per token: 1 if it attends.
Json tokens_json(const GateMaps& maps, const GatedSample& sample, size_t shown) {
  Json texts = Json::array(), labelled = Json::array(), open = Json::array();
  for (size_t i = 0; i < shown; ++i) {
    const int64_t id = sample.token[i];
    texts.push_back(maps.tokenizer != nullptr ? visible_text(maps.tokenizer->bytes_of(id))
                                              : std::to_string(id));
    if (!sample.is_labelled.empty() && sample.is_labelled[i]) labelled.push_back(i);
  }
  for (const std::vector<bool>& gate : sample.is_open) {
    std::string digits;
    for (size_t i = 0; i < shown; ++i) digits += gate[i] ? '1' : '0';
    open.push_back(digits);
  }
  const std::string cut =
      shown < sample.token.size() ? fmt::format(", the first {} drawn", shown) : "";
  return {{"title", fmt::format("{}: {} tokens{}", sample.name, sample.token.size(), cut)},
          {"texts", texts},
          {"labelled", labelled},
          {"open", open}};
}

}  // namespace

std::string visible_text(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const auto byte = static_cast<unsigned char>(bytes[0]);
    size_t size = 1;
    if (byte >= 0x80) {
      while (size < bytes.size() && continues_character(bytes[size])) ++size;
    }
    const std::string_view character = bytes.substr(0, size);
    if (byte == ' ') {
      text += "\u00b7";
    } else if (byte == '\n') {
      text += "\u21b5";
    } else if (byte == '\t') {
      text += "\u2192";
    } else if (byte < 0x20 || byte == 0x7f || check_utf8(character).valid != size) {
      for (const char bad : character) {
        text += fmt::format("\\x{:02x}", static_cast<unsigned char>(bad));
      }
    } else {
      text += character;
    }
    bytes.remove_prefix(size);
  }
  return text;
}

SampleExtent first_tokens(const std::vector<GatedSample>& samples, int64_t most) {
  SampleExtent extent;
  for (const GatedSample& sample : samples) {
    if (extent.tokens >= most) break;
    extent.samples += 1;
    extent.tokens += std::min(std::ssize(sample.token), most - extent.tokens);
  }
  return extent;
}

Page gate_page(const GateMaps& maps) {
  const bool has_labels = std::ranges::any_of(
      maps.samples, [](const GatedSample& sample) { return !sample.is_labelled.empty(); });
  Page page(maps.title);
  page.begin_section("layers", "Layers");
  add_number_tables(page, maps, has_labels);
  const SampleExtent all = first_tokens(maps.samples);
  const SampleExtent drawn = first_tokens(maps.samples, kMostDrawnTokens);
  page.begin_section("tokens", "Tokens");
  page.add({{"paragraph",
             fmt::format("Under each token stands one box for each layer, in forward order from "
                         "the top: a filled box with the layer's number where the token attends, "
                         "an empty one where it does not. {}Padding is left out. The tables are of "
                         "all tokens. Drawn: the first {} of {} tokens, {} of {} samples.",
                         has_labels ? "Tokens with a label are framed and underlined. " : "",
                         drawn.tokens, all.tokens, drawn.samples, all.samples)}});
  int64_t left = drawn.tokens;
  for (const GatedSample& sample : maps.samples | std::views::take(drawn.samples)) {
    const int64_t shown = std::min(std::ssize(sample.token), left);
    page.add({{"tokens", tokens_json(maps, sample, static_cast<size_t>(shown))}});
    left -= shown;
  }
  return page;
}

}  // namespace shoal
