#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

/// What one line of a metrics file holds, as JsonLines writes them: a flat JSON object.
class FlatRecord {
 public:
  enum class Kind {
    kNumber,   ///< `number`; NaN where the file has null, as for numbers that are not finite
    kText,     ///< `text`
    kNumbers,  ///< `numbers`, a list of numbers and nulls
    kOther,    ///< true, false, an object or another list: passed over
  };
  struct Field {
    std::string key;
    Kind kind = Kind::kOther;
    double number = 0.0;
    bool is_integer = false;  ///< of a number: written without a point and an exponent
    std::string text;
    std::vector<double> numbers;
  };

  /// Whether the line is a JSON object. If not, the record is empty. Fields of an earlier line give
  /// their memory to the next one.
  bool parse(std::string_view line);

  size_t size() const { return size_; }
  const Field& operator[](size_t i) const { return fields_[i]; }
  /// Null if there is none of this name; of several the last one.
  const Field* find(std::string_view key) const;
  /// The number at `key`; `otherwise` without one.
  double number(std::string_view key, double otherwise) const;
  /// The text at `key`; empty without one.
  std::string_view text(std::string_view key) const;

 private:
  std::vector<Field> fields_;
  size_t size_ = 0;

  friend class RecordReader;
  Field& next_field();
};

/// Lines of a file that are no records.
struct UnreadLines {
  int64_t broken = 0;        ///< lines that end, but hold no JSON object
  int64_t first_broken = 0;  ///< number of the first one, from 1
  bool is_cut = false;       ///< the last line has no end: it is being written, or a crash cut it
};

/// Calls `use` with each record of the file, in order, and passes over lines that are none. A file
/// that is not there has no lines. Throws DataError if it cannot be opened or read to its end.
UnreadLines for_each_flat_record(const std::string& path,
                                 const std::function<void(const FlatRecord&)>& use);

}  // namespace shoal
