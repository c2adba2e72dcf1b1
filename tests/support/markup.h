#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::testing {

/// What is wrong with the markup of an SVG or HTML document; empty if every tag is closed in order,
/// attributes are quoted and no markup stands in texts.
inline std::string markup_mistake(std::string_view document) {
  constexpr std::array<std::string_view, 5> kVoid{"meta", "img", "br", "hr", "input"};
  constexpr std::array<std::string_view, 4> kEntities{"&amp;", "&lt;", "&gt;", "&quot;"};
  std::vector<std::string> open;
  size_t at = 0;
  const auto near = [&] { return " at '" + std::string(document.substr(at, 60)) + "'"; };
  while (at < document.size()) {
    if (document[at] == '&') {
      const bool is_known = std::ranges::any_of(kEntities, [&](std::string_view entity) {
        return document.substr(at).starts_with(entity);
      });
      if (!is_known) return "a bare &" + near();
    }
    if (document[at] == '>') return "a bare >" + near();
    if (document[at] != '<') {
      ++at;
      continue;
    }
    if (document.substr(at).starts_with("<!") || document.substr(at).starts_with("<?")) {
      at = document.find('>', at) + 1;
      continue;
    }
    size_t end = at + 1;
    const bool closes = document[end] == '/';
    if (closes) ++end;
    std::string name;
    while (end < document.size() && std::isalnum(static_cast<unsigned char>(document[end]))) {
      name += document[end++];
    }
    if (name.empty()) return "a bare <" + near();
    bool is_quoted = false;
    while (end < document.size() && (is_quoted || document[end] != '>')) {
      if (document[end] == '"') is_quoted = !is_quoted;
      if (document[end] == '<') return "a < within a tag" + near();
      ++end;
    }
    if (end == document.size()) return "a tag without end" + near();
    const bool is_alone = document[end - 1] == '/' || std::ranges::count(kVoid, name) > 0;
    if (closes) {
      if (open.empty() || open.back() != name) return "</" + name + "> closes nothing" + near();
      open.pop_back();
    } else if (!is_alone) {
      open.push_back(name);
    }
    at = end + 1;
    const bool is_code = name == "style" || name == "script";
    if (is_code && !closes) at = document.find("</" + name + ">", at);
  }
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

/// How often `part` is in `text`.
inline int64_t count_of(std::string_view text, std::string_view part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

}  // namespace shoal::testing
