#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/report/picture.h"
#include "runtime/base/file_system.h"

namespace shoal {

/// The beginning of a page in HTML, without scripts and without anything from elsewhere, up to its
/// title in `<main>`, in colours for light and dark: the custom properties --text, --page and
/// --line, to which `style` may add. `title` is plain text, as are captions and column heads here.
std::string page_head(const std::string& title, std::string_view style);

/// What ends it.
inline constexpr const char* kPageEnd = "</main></body></html>\n";

/// A table that scrolls by itself.
std::string page_table(const std::string& caption, const std::vector<std::string>& columns,
                       const std::string& rows);

/// A row of it; its head and cells are markup.
std::string page_row(const std::string& head, const std::vector<std::string>& cells);

/// Writes a PNG, a small picture enlarged, into a page's folder; the markup that shows it. Throws
/// StorageError.
std::string page_picture(FileSystem& files, const std::string& folder, const std::string& name,
                         const Picture& picture);

}  // namespace shoal
