#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/files/data_file.h"

namespace shoal {

/// Layout of the lines of a TabbedFiles file: one record each, with a label.
struct TabbedLayout {
  std::vector<std::string> columns;  ///< names; only the last column may hold tabs
  size_t label_column = 0;  ///< which column holds the label, 0 to classes - 1; "1.0" counts as 1
  int64_t classes = 2;
  bool has_header = false;  ///< true if the first line names the columns

  /// "label<TAB>text".
  std::string text() const;
};

/// Text files of one labelled record a line, tab-separated, memory-mapped and read one after the
/// other. Lines end with \n or \r\n. Memory: 8 bytes a line. Free of torch.
class TabbedFiles {
 public:
  struct Record {
    int64_t label = 0;
    std::vector<std::string_view> columns;  ///< including the label's; views into the mapped file
  };

  /// Reads all lines once. Throws: DataError naming file and line unless each has all columns and
  /// a label, and for a file without records.
  TabbedFiles(const std::vector<std::string>& paths, TabbedLayout layout);

  int64_t size() const { return end_of_file_.empty() ? 0 : end_of_file_.back(); }
  /// Record `index`, 0 <= index < size(). Safe from several threads at once.
  Record read(int64_t index) const;
  /// The place of a record, "FILE: line 3".
  std::string where(int64_t index) const;

 private:
  struct Place {
    size_t file;
    size_t line;  // from 0, the header counted
  };
  void add_records(size_t file);
  Place find(int64_t index) const;
  std::string_view line_at(Place place) const;
  Record parse(Place place) const;
  std::string where(Place place) const;

  TabbedLayout layout_;
  std::deque<MappedFile> files_;
  std::vector<std::vector<size_t>> end_of_line_;  // of each file, behind the \n
  std::vector<int64_t> end_of_file_;              // records up to and with each file
};

}  // namespace shoal
