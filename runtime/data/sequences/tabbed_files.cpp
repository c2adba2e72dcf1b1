#include "runtime/data/sequences/tabbed_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

constexpr const char* kTabbedHint =
    "data.path must be the folder of the files that the recipe names";

/// "12", or as a number with zeros behind the point, "1.0"; below `classes`.
std::optional<int64_t> parse_label(std::string_view text, int64_t classes) {
  const size_t point = std::min(text.find('.'), text.size());
  const std::string_view whole = text.substr(0, point), rest = text.substr(point);
  if (rest.find_first_not_of("0", 1) != std::string_view::npos) return {};
  const std::optional<int64_t> label = parse_digits(whole);
  return label && *label < classes ? label : std::nullopt;
}

}  // namespace

std::string TabbedLayout::text() const { return join_words(columns, "<TAB>"); }

TabbedFiles::TabbedFiles(const std::vector<std::string>& paths, TabbedLayout layout)
    : layout_(std::move(layout)) {
  for (const std::string& path : paths) {
    files_.emplace_back(path, kTabbedHint);
    add_records(files_.size() - 1);
  }
}

void TabbedFiles::add_records(size_t file) {
  const std::string_view text = files_[file].text();
  std::vector<size_t>& ends = end_of_line_.emplace_back();
  const size_t first = layout_.has_header ? 1 : 0;
  for (size_t begin = 0; begin < text.size(); begin = ends.back()) {
    ends.push_back(std::min(text.find('\n', begin), text.size() - 1) + 1);
    // At once: a file of another kind is refused before its lines fill the memory.
    const Place place{file, ends.size() - 1};
    if (place.line >= first) {
      parse(place);
    } else if (line_at(place) != join_words(layout_.columns, "\t")) {
      throw DataError(fmt::format("{}: begins with {}, not with the line {}", where(place),
                                  quoted_excerpt(line_at(place)), layout_.text()),
                      "name a file in this format");
    }
  }
  if (ends.size() <= first) {
    throw DataError(
        fmt::format("{}: holds no records, lines of {}", files_[file].path(), layout_.text()));
  }
  end_of_file_.push_back(size() + static_cast<int64_t>(ends.size() - first));
}

TabbedFiles::Place TabbedFiles::find(int64_t index) const {
  const auto end = std::ranges::upper_bound(end_of_file_, index);
  if (index < 0 || end == end_of_file_.end()) {
    throw DataError(fmt::format("record {} of {}", index, size()));
  }
  const int64_t first = end == end_of_file_.begin() ? 0 : *(end - 1);
  return {static_cast<size_t>(end - end_of_file_.begin()),
          static_cast<size_t>(index - first) + (layout_.has_header ? 1 : 0)};
}

std::string_view TabbedFiles::line_at(Place place) const {
  const std::vector<size_t>& ends = end_of_line_[place.file];
  const size_t begin = place.line == 0 ? 0 : ends[place.line - 1];
  std::string_view line = files_[place.file].text().substr(begin, ends[place.line] - begin);
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

TabbedFiles::Record TabbedFiles::parse(Place place) const {
  std::string_view rest = line_at(place);
  Record record;
  for (size_t column = 0; column + 1 < layout_.columns.size(); ++column) {
    const size_t tab = rest.find('\t');
    if (tab == std::string_view::npos) {
      throw DataError(
          fmt::format("{}: {}, expected {}", where(place),
                      counted(static_cast<int64_t>(column) + 1, "column"), layout_.text()),
          "the file was cut short or has another format");
    }
    record.columns.push_back(rest.substr(0, tab));
    rest.remove_prefix(tab + 1);
  }
  record.columns.push_back(rest);
  const std::string_view text = record.columns[layout_.label_column];
  const std::optional<int64_t> label = parse_label(text, layout_.classes);
  if (!label) {
    throw DataError(fmt::format("{}: the label is {}, expected a whole number below {}",
                                where(place), quoted_excerpt(text), layout_.classes),
                    "the file is damaged or has another format");
  }
  record.label = *label;
  return record;
}

TabbedFiles::Record TabbedFiles::read(int64_t index) const { return parse(find(index)); }

std::string TabbedFiles::where(int64_t index) const { return where(find(index)); }

std::string TabbedFiles::where(Place place) const {
  return fmt::format("{}: line {}", files_[place.file].path(), place.line + 1);
}

}  // namespace shoal
