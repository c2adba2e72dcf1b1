#include "launch/pages/page.h"

#include <fmt/format.h>

#include <map>

namespace shoal {
namespace {

// Tables scroll in boxes of their own, so that the page fits any width.
constexpr std::string_view kPageHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{0}</title><style>
:root {{ color-scheme: light dark; --text: #1c1c1c; --page: #fff; --line: #767676; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --text: #ececec; --page: #161616; --line: #8f8f8f; }} }}
body {{ font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page);
  margin: 0 auto; padding: 16px; max-width: 90rem; }}
h1, h2 {{ line-height: 1.2; overflow-wrap: anywhere; }}
p {{ max-width: 46rem; }}
.scroll {{ overflow-x: auto; margin-bottom: 16px; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
caption {{ text-align: left; font-weight: bold; padding: 4px 0; }}
th, td {{ padding: 3px 10px; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }}
th:first-child {{ text-align: left; }}
.colours {{ max-width: 420px; margin: 4px 0 14px; }}
.colours img {{ display: block; width: 100%; height: 12px; border: 1px solid var(--line);
  box-sizing: border-box; }}
.colours div {{ position: relative; height: 18px; font-size: 12px;
  font-variant-numeric: tabular-nums; }}
.colours span {{ position: absolute; white-space: nowrap; }}
.skip {{ position: absolute; left: -100rem; }}
.skip:focus {{ position: static; }}
a {{ color: inherit; }}
{1}</style></head><body>
<a class="skip" href="#content">Skip to the content</a>
<header><h1>{0}</h1>
{2}</header><main id="content">
)";

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0);
    }
    for (size_t k = 0; k < 4; ++k) {
      text += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

}  // namespace

std::string page_head(const std::string& title, std::string_view style, std::string_view nav) {
  return fmt::format(fmt::runtime(kPageHead), xml_text(title), style, nav);
}

std::string page_table(const std::string& caption, const std::vector<std::string>& columns,
                       const std::string& rows) {
  std::string head;
  for (const std::string& column : columns) {
    head += fmt::format("<th scope=\"col\">{}</th>", xml_text(column));
  }
  return fmt::format(
      "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{0}\">\n<table>"
      "<caption>{0}</caption>\n<thead><tr>{1}</tr></thead>\n<tbody>\n{2}</tbody></table></div>\n",
      xml_text(caption), head, rows);
}

std::string page_row(const std::string& head, const std::vector<std::string>& cells) {
  std::string html = fmt::format("<tr><th scope=\"row\">{}</th>", head);
  for (const std::string& cell : cells) html += fmt::format("<td>{}</td>", cell);
  return html + "</tr>\n";
}

std::string page_scale(const std::string& label, const std::vector<Rgb>& colours,
                       const std::vector<ScaleTick>& ticks) {
  const Picture bar{static_cast<int64_t>(colours.size()), 1, colours};
  std::string html = fmt::format(
      "<div class=\"colours\" role=\"img\" aria-label=\"{}\"><img alt=\"\" src=\"{}\">\n<div>",
      xml_text(label), png_address(bar));
  for (const ScaleTick& tick : ticks) {
    // Labels at the ends are shifted to stay within the bar.
    html += fmt::format("<span style=\"left:{0:g}%;transform:translateX(-{0:g}%)\">{1}</span>",
                        100 * tick.place, xml_text(tick.label));
  }
  return html + "</div></div>\n";
}

std::string viridis_scale(const std::string& least, const std::string& most,
                          std::string_view unit) {
  constexpr int64_t kColours = 64;
  std::vector<Rgb> colours;
  for (int64_t i = 0; i < kColours; ++i) {
    colours.push_back(viridis(static_cast<double>(i) / (kColours - 1)));
  }
  return page_scale(fmt::format("Colours from dark, {}, to bright, {}{}", least, most, unit),
                    colours, {{0, least}, {1, most}});
}

std::string png_address(const Picture& picture) { return png_address(png_bytes(picture)); }

std::string png_address(std::string_view png) { return "data:image/png;base64," + base64(png); }

std::string page_picture(FileSystem& files, const std::string& folder, const std::string& name,
                         const Picture& picture) {
  replace_file(files, folder + "/" + name, png_bytes(enlarge_small(picture)));
  return fmt::format("<img src=\"{0}\" alt=\"{0}\">", xml_text(name));
}

std::string xml_text(const std::string& text) {
  static const std::map<char, std::string> kMarkup{
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}};
  std::string result;
  for (const char c : text) {
    const auto markup = kMarkup.find(c);
    const char shown = static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    result += markup == kMarkup.end() ? std::string(1, shown) : markup->second;
  }
  return result;
}

}  // namespace shoal
