#include "runtime/records/flat_record.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/files/data_file.h"

namespace shoal {

/// Takes the events of the parser of one line. Returning false ends the parse.
class RecordReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit RecordReader(FlatRecord& record) : record_(record) {}

  /// A number beyond doubles, which ends a parse, and where it ends; else empty.
  std::string beyond;
  size_t end = 0;

  bool null() override { return number(std::numeric_limits<double>::quiet_NaN(), false); }
  bool boolean(bool /*value*/) override { return other(); }
  bool number_integer(number_integer_t value) override {
    return number(value == 0 ? -0.0 : static_cast<double>(value), true);
  }
  bool number_unsigned(number_unsigned_t value) override {
    return number(static_cast<double>(value), true);
  }
  bool number_float(number_float_t value, const string_t& text) override {
    return number(value, text.find_first_not_of("-0123456789") == std::string::npos);
  }
  bool string(string_t& value) override {
    if (depth_ != 1) return other();
    field_->kind = FlatRecord::Kind::kText;
    field_->text = value;
    return true;
  }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(size_t /*elements*/) override { return depth_++ == 0 || other(); }
  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    field_ = &record_.next_field();
    field_->key = name;
    return true;
  }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(size_t /*elements*/) override {
    if (depth_++ != 1) return other();
    field_->kind = FlatRecord::Kind::kNumbers;
    field_->numbers.clear();
    return true;
  }
  bool end_array() override { return --depth_ >= 0; }
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::json::exception& error) override {
    constexpr int kBeyondDoubles = 406;
    if (error.id == kBeyondDoubles) beyond = token;
    end = position;
    return false;
  }

 private:
  bool number(double value, bool is_integer) {
    if (depth_ == 1) {
      field_->kind = FlatRecord::Kind::kNumber;
      field_->number = value;
      field_->is_integer = is_integer;
    } else if (depth_ == 2 && field_->kind == FlatRecord::Kind::kNumbers) {
      field_->numbers.push_back(value);
    }
    return depth_ > 0;
  }
  /// A value that is passed over, by itself or in a list.
  bool other() {
    if (field_ != nullptr) field_->kind = FlatRecord::Kind::kOther;
    return field_ != nullptr;
  }

  FlatRecord& record_;
  FlatRecord::Field* field_ = nullptr;
  int64_t depth_ = 0;  ///< objects and lists that are open
};

FlatRecord::Field& FlatRecord::next_field() {
  if (size_ == fields_.size()) fields_.emplace_back();
  return fields_[size_++];
}

bool FlatRecord::parse(std::string_view line) {
  // The parser takes NUL for the end of its input, and passes over a byte order mark.
  bool may_be_record = line.find('\0') == line.npos && !line.starts_with("\xEF\xBB\xBF");
  for (std::string shorter; may_be_record; line = shorter) {
    size_ = 0;
    RecordReader reader(*this);
    if (nlohmann::json::sax_parse(line.begin(), line.end(), &reader)) return true;
    // Numbers beyond doubles are not finite: null.
    may_be_record = !reader.beyond.empty();
    shorter = line;
    if (may_be_record)
      shorter.replace(reader.end - reader.beyond.size(), reader.beyond.size(), "null");
  }
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
