#include "runtime/records/flat_record.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/files/data_file.h"

namespace shoal {

/// Walks over the JSON of one line. Every method returns whether what it is named after was there.
class RecordScanner {
 public:
  explicit RecordScanner(std::string_view text) : at_(text.data()), end_(at_ + text.size()) {}

  bool object(FlatRecord& record) {
    if (!take('{')) return false;
    if (take('}')) return is_at_end();
    do {
      FlatRecord::Field& field = record.next_field();
      if (!string(field.key) || !take(':') || !value(field)) return false;
    } while (take(','));
    return take('}') && is_at_end();
  }

 private:
  static constexpr int kMaxNesting = 64;

  void skip_blanks() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }

  bool is_at_end() {
    skip_blanks();
    return at_ == end_;
  }

  bool take(char c) {
    skip_blanks();
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  bool word(std::string_view text) {
    if (!std::string_view(at_, static_cast<size_t>(end_ - at_)).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }

  bool value(FlatRecord::Field& field) {
    skip_blanks();
    if (at_ == end_) return false;
    field.kind = FlatRecord::Kind::kOther;
    switch (*at_) {
      case '"':
        field.kind = FlatRecord::Kind::kText;
        return string(field.text);
      case '[':
        return list(field);
      case '{':
        return other(0);
      case 't':
        return word("true");
      case 'f':
        return word("false");
      default:
        field.kind = FlatRecord::Kind::kNumber;
        return number_field(field);
    }
  }

  bool number_field(FlatRecord::Field& field) {
    const char* begin = at_;
    if (!number_or_null(field.number)) return false;
    const std::string_view written(begin, static_cast<size_t>(at_ - begin));
    field.is_integer = written.find_first_not_of("-0123456789") == std::string_view::npos;
    return true;
  }

  bool number_or_null(double& number) {
    skip_blanks();
    if (word("null")) {
      number = std::numeric_limits<double>::quiet_NaN();
      return true;
    }
    const char* stop = number_end();
    if (stop == at_) return false;
    if (std::from_chars(at_, stop, number).ec == std::errc::result_out_of_range) {
      // Which does not tell numbers too close to 0 from those beyond doubles.
      const double nearest = std::strtod(std::string(at_, stop).c_str(), nullptr);
      number = std::isinf(nearest) ? std::numeric_limits<double>::quiet_NaN() : nearest;
    }
    at_ = stop;
    return true;
  }

  /// Where the number ends that begins at at_, by JSON's grammar; at_ if there is none.
  const char* number_end() const {
    const char* at = at_;
    const auto is_one_of = [&](std::string_view wanted) {
      return at != end_ && wanted.find(*at) != std::string_view::npos;
    };
    const auto skip_digits = [&] {
      const char* first = at;
      while (is_one_of("0123456789")) ++at;
      return at - first;
    };
    if (is_one_of("-")) ++at;
    const char* whole = at;
    const auto num_digits = skip_digits();
    if (num_digits == 0 || (num_digits > 1 && *whole == '0')) return at_;
    if (is_one_of(".")) {
      ++at;
      if (skip_digits() == 0) return at_;
    }
    if (is_one_of("eE")) {
      ++at;
      if (is_one_of("+-")) ++at;
      if (skip_digits() == 0) return at_;
    }
    return at;
  }

  /// A list of numbers, or one of other things, which is passed over.
  bool list(FlatRecord::Field& field) {
    const char* begin = at_;
    field.numbers.clear();
    ++at_;
    if (take(']')) {
      field.kind = FlatRecord::Kind::kNumbers;
      return true;
    }
    double number = 0.0;
    do {
      if (!number_or_null(number)) {
        at_ = begin;
        return other(0);
      }
      field.numbers.push_back(number);
    } while (take(','));
    field.kind = FlatRecord::Kind::kNumbers;
    return take(']');
  }

  /// Passes over a value of any kind.
  bool other(int depth) {
    skip_blanks();
    if (at_ == end_ || depth > kMaxNesting) return false;
    if (*at_ == '"') return string(passed_over_);
    if (word("true") || word("false")) return true;
    const bool is_object = *at_ == '{';
    if (!is_object && *at_ != '[') {
      double number = 0.0;
      return number_or_null(number);
    }
    ++at_;
    const char close = is_object ? '}' : ']';
    if (take(close)) return true;
    do {
      skip_blanks();
      if (is_object && (!string(passed_over_) || !take(':'))) return false;
      if (!other(depth + 1)) return false;
    } while (take(','));
    return take(close);
  }

  bool string(std::string& text) {
    text.clear();
    if (!take('"')) return false;
    while (at_ != end_) {
      const char* plain = at_;
      while (at_ != end_ && *at_ != '"' && *at_ != '\\' && static_cast<unsigned char>(*at_) >= 32) {
        ++at_;
      }
      text.append(plain, at_);
      if (at_ == end_ || static_cast<unsigned char>(*at_) < 32) return false;
      if (*at_++ == '"') return true;
      if (!escape(text)) return false;
    }
    return false;
  }

  /// The escape whose backslash was there; of a surrogate pair both.
  bool escape(std::string& text) {
    const std::string_view rest(at_, static_cast<size_t>(end_ - at_));
    const bool is_pair = rest.size() > 2 && (rest[1] == 'd' || rest[1] == 'D') &&
                         std::string_view("89abAB").find(rest[2]) != std::string_view::npos;
    const std::string_view own = rest.substr(0, !rest.starts_with('u') ? 1 : is_pair ? 11 : 5);
    const auto character = nlohmann::json::parse(fmt::format("\"\\{}\"", own), nullptr,
                                                 /*allow_exceptions=*/false);
    if (!character.is_string()) return false;
    text += character.get_ref<const std::string&>();
    at_ += own.size();
    return true;
  }

  const char* at_;
  const char* end_;
  std::string passed_over_;
};

FlatRecord::Field& FlatRecord::next_field() {
  if (size_ == fields_.size()) fields_.emplace_back();
  return fields_[size_++];
}

bool FlatRecord::parse(std::string_view line) {
  size_ = 0;
  if (RecordScanner(line).object(*this)) return true;
  size_ = 0;
  return false;
}

const FlatRecord::Field* FlatRecord::find(std::string_view key) const {
  for (size_t i = size_; i-- > 0;) {
    if (fields_[i].key == key) return &fields_[i];
  }
  return nullptr;
}

double FlatRecord::number(std::string_view key, double otherwise) const {
  const Field* field = find(key);
  return field != nullptr && field->kind == Kind::kNumber ? field->number : otherwise;
}

std::string_view FlatRecord::text(std::string_view key) const {
  const Field* field = find(key);
  return field != nullptr && field->kind == Kind::kText ? std::string_view(field->text)
                                                        : std::string_view();
}

UnreadLines for_each_flat_record(const std::string& path,
                                 const std::function<void(const FlatRecord&)>& use) {
  UnreadLines unread;
  std::error_code unknown;
  const bool is_missing =
      std::filesystem::status(path, unknown).type() == std::filesystem::file_type::not_found;
  if (is_missing) return unread;
  if (is_named_pipe(path)) throw DataError("'" + path + "' is a named pipe, not a file");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw DataError("open '" + path + "': " + std::generic_category().message(errno));
  FlatRecord record;
  std::string text;
  for (int64_t line = 1; std::getline(stream, text); ++line) {
    if (stream.eof()) {
      unread.is_cut = true;
    } else if (record.parse(text)) {
      use(record);
    } else if (++unread.broken == 1) {
      unread.first_broken = line;
    }
  }
  if (stream.bad()) throw DataError("'" + path + "' cannot be read to its end");
  return unread;
}

}  // namespace shoal
