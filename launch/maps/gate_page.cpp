#include "launch/maps/gate_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "launch/pages/page.h"
#include "runtime/base/utf8.h"

namespace shoal {
namespace {

// Tokens wrap like words, so that the page fits any width.
constexpr std::string_view kGateStyle =
    R"(:root { --open: #14507f; --on-open: #fff; --label: #8a3b00; }
@media (prefers-color-scheme: dark) {
  :root { --open: #8cc8ff; --on-open: #10202e; --label: #ffb070; } }
.tokens { list-style: none; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: 6px 2px; }
.tokens li { border: 1px solid transparent; padding: 0 1px; text-align: center; min-width: 1.3em;
  max-width: 100%; position: relative; }
.tokens li.l { border-color: var(--label); border-radius: 3px; }
.tokens code { display: block; font: 14px/1.4 ui-monospace, monospace;
  overflow-wrap: anywhere; }
.l > code { color: var(--label); font-weight: bold; text-decoration: underline; }
i { display: block; font: 10px/14px ui-monospace, monospace; height: 14px; margin-top: 1px;
  border: 1px solid var(--line); border-radius: 2px; }
i.o { background: var(--open); color: var(--on-open); border-color: var(--open); }
.s { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
  white-space: nowrap; }
@media (forced-colors: active) { i.o { outline: 2px solid; } }
)";

constexpr std::string_view kIntroduction = R"(
<p>Under each token stands one box for each layer, in forward order from the top: a filled box with
the layer's number where the token attends, an empty one where it does not. {}Padding is left
out.</p>
)";

constexpr std::string_view kLabelled = "Tokens with a label are framed and underlined. ";

std::string share_text(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f} %", *share * 100) : "-";
}

std::string nats_text(const std::optional<double>& nats) {
  return nats ? fmt::format("{:.4f}", *nats) : "-";
}

std::string number_tables(const GateMaps& maps, bool has_labels) {
  std::string rows, bins;
  for (size_t i = 0; i < maps.layers.size(); ++i) {
    const GateNumbers& numbers = maps.numbers[i];
    const std::string name = xml_text(fmt::format("{}: {}", i + 1, maps.layers[i]));
    std::vector<std::string> cells{share_text(numbers.rate), nats_text(numbers.token_information)};
    if (has_labels) {
      cells.push_back(share_text(numbers.recall));
      cells.push_back(nats_text(numbers.label_information));
    }
    rows += page_row(name, cells);
    cells.clear();
    for (const auto& share : numbers.rate_by_position) cells.push_back(share_text(share));
    bins += page_row(name, cells);
  }
  std::vector<std::string> parts{"layer"};
  for (int64_t bin = 1; bin <= GateNumbers::kPositionBins; ++bin) {
    parts.push_back(fmt::format("{}", bin));
  }
  std::vector<std::string> columns{"layer", "attending", "I(gate; token id), nats"};
  if (has_labels) {
    columns.insert(columns.end(), {"attending of the labelled", "I(gate; labelled), nats"});
  }
  return page_table("Layers", columns, rows) +
         page_table("Share attending in each sixteenth of the context", parts, bins);
}

/// List item of one token.
std::string token_item(const GateMaps& maps, const GatedSample& sample, size_t i) {
  const bool is_labelled = !sample.is_labelled.empty() && sample.is_labelled[i];
  const int64_t id = sample.token[i];
  const std::string text = maps.tokenizer != nullptr ? visible_text(maps.tokenizer->bytes_of(id))
                                                     : fmt::format("{}", id);
  std::string boxes, layers;
  for (size_t gate = 0; gate < sample.is_open.size(); ++gate) {
    if (!sample.is_open[gate][i]) {
      boxes += "<i></i>";
      continue;
    }
    boxes += fmt::format("<i class=\"o\">{}</i>", gate + 1);
    layers += fmt::format("{}{}", layers.empty() ? "attends in layer " : ", ", gate + 1);
  }
  return fmt::format(
      "<li{}><code>{}</code><span class=\"s\">{}{}</span><span aria-hidden=\"true\">{}</span>"
      "</li>\n",
      is_labelled ? " class=\"l\"" : "", xml_text(text), is_labelled ? "labelled, " : "",
      layers.empty() ? "does not attend" : layers, boxes);
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

std::string gate_page(const GateMaps& maps) {
  const bool has_labels = std::ranges::any_of(
      maps.samples, [](const GatedSample& sample) { return !sample.is_labelled.empty(); });
  std::string html = page_head(maps.title, kGateStyle) +
                     fmt::format(kIntroduction, has_labels ? kLabelled : std::string_view());
  html += number_tables(maps, has_labels);
  const SampleExtent all = first_tokens(maps.samples);
  const SampleExtent drawn = first_tokens(maps.samples, kMostDrawnTokens);
  html += fmt::format(
      "<p>The tables are of all tokens. Drawn: the first {} of {} tokens, {} of {} samples.</p>\n",
      drawn.tokens, all.tokens, drawn.samples, all.samples);
  int64_t left = drawn.tokens;
  for (const GatedSample& sample : maps.samples | std::views::take(drawn.samples)) {
    const int64_t size = std::ssize(sample.token), shown = std::min(size, left);
    html +=
        fmt::format("<section>\n<h2>{}: {} tokens{}</h2>\n<ol class=\"tokens\" role=\"list\">\n",
                    xml_text(sample.name), size,
                    shown < size ? fmt::format(", the first {} drawn", shown) : "");
    for (int64_t i = 0; i < shown; ++i) html += token_item(maps, sample, static_cast<size_t>(i));
    html += "</ol>\n</section>\n";
    left -= shown;
  }
  return html + kPageEnd;
}

}  // namespace shoal
