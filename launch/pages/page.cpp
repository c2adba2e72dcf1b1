#include "launch/pages/page.h"

#include <fmt/format.h>

#include "launch/pages/page_template.h"
#include "runtime/base/build_info.h"
#include "runtime/base/json_text.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

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

std::string escaped(const Json& text) { return xml_text(text.get<std::string>()); }

std::string cell_html(const Json& cell) {
  if (cell.is_string()) return escaped(cell);
  return fmt::format("<span class=\"chip\" style=\"background:{}\"></span>{}",
                     cell["colour"].get<std::string>(), escaped(cell["text"]));
}

std::string row_html(const Json& row, bool is_head) {
  std::string html = "<tr>";
  for (size_t i = 0; i < row.size(); ++i) {
    const char* scope = is_head ? " scope=\"col\"" : " scope=\"row\"";
    const bool is_name = is_head || i == 0;
    html += fmt::format("<{0}{1}>{2}</{0}>", is_name ? "th" : "td", is_name ? scope : "",
                        cell_html(row[i]));
  }
  return html + "</tr>\n";
}

std::string table_html(const Json& table) {
  const std::string caption = escaped(table["caption"]);
  std::string rows;
  for (size_t i = 1; i < table["rows"].size(); ++i) rows += row_html(table["rows"][i], false);
  const std::string html = fmt::format(
      "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{0}\">\n<table>"
      "<caption>{0}</caption>\n<thead>{1}</thead>\n<tbody>\n{2}</tbody></table></div>\n",
      caption, row_html(table["rows"][0], true), rows);
  if (!table.value("folded", false)) return html;
  return fmt::format("<details><summary>{}</summary>\n{}</details>\n", caption, html);
}

std::string heads_html(const Json& picture) {
  std::string html = fmt::format(
      "<div class=\"heads\" aria-hidden=\"true\" style=\"grid-template-columns:repeat({},"
      "minmax(0,1fr));column-gap:{:.4g}%\">",
      picture["heads"].size(), picture["gap"].get<double>());
  for (const Json& head : picture["heads"]) html += fmt::format("<span>{}</span>", escaped(head));
  return html + "</div>\n";
}

std::string pictures_html(const Json& pictures) {
  std::string html = "<div class=\"pictures\">\n";
  for (const Json& picture : pictures) {
    html += "<figure>";
    if (picture.contains("heads")) html += heads_html(picture);
    html += "<div class=\"images\">";
    for (const Json& image : picture["images"]) {
      html +=
          fmt::format("<img alt=\"{}\" src=\"{}\"", escaped(image["alt"]), escaped(image["src"]));
      if (image.contains("width")) html += fmt::format(" width=\"{}\"", json_text(image["width"]));
      html += ">";
    }
    html +=
        fmt::format("</div><figcaption>{}</figcaption></figure>\n", escaped(picture["caption"]));
  }
  return html + "</div>\n";
}

std::string list_html(const Json& items) {
  std::string html = "<ul class=\"notes\">\n";
  for (const Json& item : items) html += fmt::format("<li>{}</li>\n", escaped(item));
  return html + "</ul>\n";
}

std::string facts_html(const Json& facts) {
  std::string html = "<dl class=\"facts\">\n";
  for (const Json& fact : facts) {
    html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escaped(fact[0]), escaped(fact[1]));
  }
  return html + "</dl>\n";
}

std::string block_html(const std::string& kind, const Json& content) {
  if (kind == "paragraph") return fmt::format("<p>{}</p>\n", escaped(content));
  if (kind == "heading") return fmt::format("<h3>{}</h3>\n", escaped(content));
  if (kind == "list") return list_html(content);
  if (kind == "facts") return facts_html(content);
  if (kind == "table") return table_html(content);
  return pictures_html(content);
}

bool is_figure(const Json& block) {
  return block.contains("curves") || block.contains("heat") || block.contains("tokens");
}

/// The place of a figure, with the table of its numbers.
std::string figure_html(const Json& block) {
  const Json& content = block.begin().value();
  return fmt::format("<figure class=\"plot {}\"><figcaption>{}</figcaption>\n{}</figure>\n",
                     block.begin().key(), escaped(content["title"]),
                     block.contains("table") ? table_html(block["table"]) : "");
}

/// Markup of a section; adds what its figures draw to `figures`.
std::string section_html(const Json& section, Json& figures) {
  std::string html = fmt::format("<section id=\"{}\">\n", section["id"].get<std::string>());
  if (section["heading"] != "") html += fmt::format("<h2>{}</h2>\n", escaped(section["heading"]));
  bool is_in_plots = false;
  for (const Json& block : section["blocks"]) {
    if (is_figure(block) != is_in_plots)
      html += is_in_plots ? "</div>\n" : "<div class=\"plots\">\n";
    is_in_plots = is_figure(block);
    const std::string& kind = block.begin().key();
    const Json& content = block.begin().value();
    html += is_in_plots ? figure_html(block) : block_html(kind, content);
    if (is_in_plots) figures.push_back(Json{{kind, content}});
  }
  return html + (is_in_plots ? "</div>\n</section>\n" : "</section>\n");
}

/// The colours of heat maps, from the lowest to the highest value.
Json palettes() {
  constexpr int kMost = 64;
  Json palettes{{"viridis", Json::array()}, {"load", Json::array()}};
  for (int i = 0; i <= kMost; ++i) {
    palettes["viridis"].push_back(hex_colour(viridis(1.0 * i / kMost)));
    palettes["load"].push_back(hex_colour(blue_to_red(2.0 * i / kMost - 1)));
  }
  return palettes;
}

}  // namespace

void Page::begin_section(const std::string& id, const std::string& heading) {
  sections_.push_back({{"id", id}, {"heading", heading}, {"blocks", Json::array()}});
}

void Page::add(Json block) { sections_.back()["blocks"].push_back(std::move(block)); }

void Page::add_table(const CaptionedTable& table, bool is_folded) {
  add({{"table", {{"caption", table.caption}, {"rows", table.rows}, {"folded", is_folded}}}});
}

size_t Page::steps_index(const std::vector<double>& steps) {
  return steps_.try_emplace(steps, steps_.size()).first->second;
}

Json Page::json() const {
  Json steps(steps_.size(), Json()), sections = Json::array();
  for (const auto& [list, index] : steps_) steps[index] = list;
  for (const Json& section : sections_) {
    if (!section["blocks"].empty()) sections.push_back(section);
  }
  return {{"title", title_}, {"runs", runs_}, {"steps", steps}, {"sections", sections}};
}

std::string Page::html() const {
  Json data = json(), figures = Json::array();
  std::string links, content;
  for (const Json& section : data["sections"]) {
    content += section_html(section, figures);
    if (section["heading"] == "") continue;
    links += fmt::format("<li><a href=\"#{}\">{}</a></li>\n", section["id"].get<std::string>(),
                         escaped(section["heading"]));
  }
  data.erase("sections");
  data["figures"] = figures;
  data["palettes"] = palettes();
  // Within a script element only a "<" could end it.
  const std::string text = replaced(json_text(data), "<", "\\u003c");
  const std::string title = xml_text(title_);
  std::string_view rest = page_template();
  std::string html;
  for (const auto& [name, value] : {std::pair{"{{title}}", title},
                                    {"{{heading}}", title},
                                    {"{{links}}", links},
                                    {"{{content}}", content},
                                    {"{{version}}", build_info().version},
                                    {"{{data}}", text}}) {
    const size_t at = rest.find(name);
    html += std::string(rest.substr(0, at)) + value;
    rest.remove_prefix(at + std::string_view(name).size());
  }
  return html + std::string(rest);
}

std::string png_address(const Picture& picture) { return png_address(png_bytes(picture)); }

std::string png_address(std::string_view png) { return "data:image/png;base64," + base64(png); }

Json page_image(FileSystem& files, const std::string& folder, const std::string& name,
                const Picture& picture) {
  replace_file(files, folder + "/" + name, png_bytes(enlarge_small(picture)));
  return {{"src", name}, {"alt", name}};
}

std::string xml_text(std::string text) {
  for (const auto& [sign, markup] :
       {std::pair{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}}) {
    text = replaced(std::move(text), sign, markup);
  }
  for (char& c : text) c = static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return text;
}

}  // namespace shoal
