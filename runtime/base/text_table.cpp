#include "runtime/base/text_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace shoal {

std::string text_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  std::string text;
  for (size_t index = 0; index < rows.size(); ++index) {
    std::string line;
    for (size_t column = 0; column < rows[index].size(); ++column) {
      line += fmt::format("{:<{}}  ", rows[index][column], widths[column]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += "  " + line + "\n";
    if (index == 0) {
      size_t total = 0;
      for (const size_t width : widths) total += width + 2;
      text += "  " + std::string(total - 2, '-') + "\n";
    }
  }
  return text;
}

}  // namespace shoal
