#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/pages/picture.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// `text` for HTML and XML: markup escaped, control characters replaced by blanks.
std::string xml_text(const std::string& text);

/// The beginning of a page in HTML, without scripts and without anything from elsewhere: its title,
/// `nav`, markup that may be empty, and `<main>`, in colours for light and dark: the custom
/// properties --text, --page and --line, to which `style` may add. `title` is plain text, as are
/// captions and column heads here.
std::string page_head(const std::string& title, std::string_view style, std::string_view nav = "");

/// What ends it.
inline constexpr const char* kPageEnd = "</main></body></html>\n";

/// A table that scrolls by itself.
std::string page_table(const std::string& caption, const std::vector<std::string>& columns,
                       const std::string& rows);

/// A row of it; its head and cells are markup.
std::string page_row(const std::string& head, const std::vector<std::string>& cells);

/// A bar of colours with numbers below it; `label` is what it says to those who cannot see it.
std::string page_scale(const std::string& label, const std::vector<Rgb>& colours,
                       const std::vector<ScaleTick>& ticks);

/// The picture as a PNG within the page: an address that begins with `data:`.
std::string png_address(const Picture& picture);
/// The same of the bytes of a PNG file.
std::string png_address(std::string_view png);

/// Writes a PNG, a small picture enlarged, into a page's folder; the markup that shows it. Throws
/// StorageError.
std::string page_picture(FileSystem& files, const std::string& folder, const std::string& name,
                         const Picture& picture);

}  // namespace shoal
