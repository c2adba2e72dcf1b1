#include "launch/inspect/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "launch/report/heat_map.h"

namespace shoal {
namespace {

constexpr int64_t kLeastSide = 128;  ///< of a picture, in pixels

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
{1}</style></head><body><main>
<h1>{0}</h1>
)";

}  // namespace

std::string page_head(const std::string& title, std::string_view style) {
  return fmt::format(fmt::runtime(kPageHead), xml_text(title), style);
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

std::string page_picture(FileSystem& files, const std::string& folder, const std::string& name,
                         const Picture& picture) {
  const int64_t side = std::max<int64_t>(1, std::max(picture.width, picture.height));
  const Picture shown = enlarge(picture, std::max<int64_t>(1, kLeastSide / side));
  replace_file(files, folder + "/" + name, png_bytes(shown));
  return fmt::format("<img src=\"{0}\" alt=\"{0}\">", xml_text(name));
}

}  // namespace shoal
