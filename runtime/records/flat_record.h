#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

/// One line of a metrics file such as metrics.jsonl: a flat JSON object.
class FlatRecord {
 public:
  enum class Kind {
    kNumber,   ///< `number`; NaN for null, which stands for numbers that are not finite
    kText,     ///< `text`
    kNumbers,  ///< `numbers`, a list of numbers and nulls
    kOther,    ///< true, false, an object or another list: ignored
  };
  struct Field {
    std::string key;
    Kind kind = Kind::kOther;
    double number = 0.0;
    bool is_integer = false;  ///< true if written without a point and an exponent
    std::string text;
    std::vector<double> numbers;
  };

  /// Replaces the content by that of the line. Returns false, with an empty record, if the line is
  /// not a JSON object. Reuses memory.
  bool parse(std::string_view line);

  size_t size() const { return size_; }
  const Field& operator[](size_t i) const { return fields_[i]; }
  /// The last field of this name; null if there is none.
  const Field* find(std::string_view key) const;
  /// The number at `key`; `otherwise` if there is none.
  double number(std::string_view key, double otherwise) const;
  /// The text at `key`; empty if there is none.
  std::string_view text(std::string_view key) const;

 private:
  std::vector<Field> fields_;
  size_t size_ = 0;

  friend class RecordReader;
  Field& next_field();
};

/// Lines of a file that are not records.
struct UnreadLines {
  int64_t broken = 0;        ///< terminated lines that are not a JSON object
  int64_t first_broken = 0;  ///< number of the first such line, from 1
  bool is_cut = false;       ///< true if the last line is cut off or still being written
};

/// Calls `use` with each record of the file, in order, and skips other lines. A missing file has no
/// lines. Throws DataError if the file cannot be opened or read to its end.
UnreadLines for_each_flat_record(const std::string& path,
                                 const std::function<void(const FlatRecord&)>& use);

}  // namespace shoal
