#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/pages/picture.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// Escapes `text` for HTML and XML; control characters become blanks.
std::string xml_text(const std::string& text);

/// The beginning of a self-contained HTML page without scripts: its title, `nav` (markup, may be
/// empty) and `<main>`, in light and dark colours: the custom properties --text, --page and --line,
/// to which `style` may add. `title` is plain text, as are captions and column heads here.
std::string page_head(const std::string& title, std::string_view style, std::string_view nav = "");

/// The end of a page.
inline constexpr const char* kPageEnd = "</main></body></html>\n";

/// A table with its own scroll bar.
std::string page_table(const std::string& caption, const std::vector<std::string>& columns,
                       const std::string& rows);

/// A row of a table; head and cells are markup.
std::string page_row(const std::string& head, const std::vector<std::string>& cells);

/// A bar of colours with numbers below it; `label`: its description for screen readers.
std::string page_scale(const std::string& label, const std::vector<Rgb>& colours,
                       const std::vector<ScaleTick>& ticks);

/// The picture as an embedded PNG: an address that begins with `data:`.
std::string png_address(const Picture& picture);
/// An embedded PNG from the bytes of a PNG file.
std::string png_address(std::string_view png);

/// Writes a PNG into a page's folder, enlarged if it is small; returns the markup that shows it.
/// Throws StorageError.
std::string page_picture(FileSystem& files, const std::string& folder, const std::string& name,
                         const Picture& picture);

}  // namespace shoal
