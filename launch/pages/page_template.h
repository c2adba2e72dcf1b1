#pragma once

#include <string_view>

namespace shoal {

/// HTML of a page with style and scripts, which the build joins from page.html, page.css, maps.js
/// and page.js and dygraphs. Page fills in `{{title}}`, `{{heading}}`, `{{links}}`, `{{version}}`,
/// `{{content}}` and `{{data}}`, each there once.
std::string_view page_template();

}  // namespace shoal
