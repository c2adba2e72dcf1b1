#pragma once

#include <string>
#include <vector>

namespace shoal {

/// Rows of cells as text, columns aligned, the first row underlined.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace shoal
