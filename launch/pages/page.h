#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/pages/picture.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// Escapes `text` for HTML and XML, and replaces control characters by blanks.
std::string xml_text(const std::string& text);

/// Head of a self-contained HTML page without scripts: title, `nav` (markup, may be empty) and
/// `<main>`. Light and dark colours are the custom properties --text, --page and --line; `style`
/// may add CSS. `title`, like captions and column heads below, is plain text.
std::string page_head(const std::string& title, std::string_view style, std::string_view nav = "");

/// End of a page begun by page_head().
inline constexpr const char* kPageEnd = "</main></body></html>\n";

/// Table with horizontal scrolling; `rows` are from page_row().
std::string page_table(const std::string& caption, const std::vector<std::string>& columns,
                       const std::string& rows);

/// Row of a table; head and cells are markup.
std::string page_row(const std::string& head, const std::vector<std::string>& cells);

/// Colour scale with numbers below it; `label` is the alternative text for screen readers.
std::string page_scale(const std::string& label, const std::vector<Rgb>& colours,
                       const std::vector<ScaleTick>& ticks);

/// The colour scale of viridis, from dark for `least` to bright for `most`, which are its labels;
/// `unit` follows `most` in the alternative text.
std::string viridis_scale(const std::string& least, const std::string& most,
                          std::string_view unit = "");

/// Encodes the picture as PNG in a `data:` URL.
std::string png_address(const Picture& picture);
/// An embedded PNG from the bytes of a PNG file.
std::string png_address(std::string_view png);

/// Writes a PNG into a page's folder, magnified if small; returns its markup. Throws StorageError.
std::string page_picture(FileSystem& files, const std::string& folder, const std::string& name,
                         const Picture& picture);

}  // namespace shoal
