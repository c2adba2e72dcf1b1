#include "runtime/options/config_value.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "runtime/base/duration.h"
#include "runtime/base/text.h"
#include "runtime/options/key_synonyms.h"
#include "runtime/options/registry.h"
#include "runtime/yaml/config_scalar.h"

namespace shoal::config {
namespace {

std::string check_range(double value, const Range& range, const Node& node) {
  const bool is_inside = (range.lower_open ? value > range.lower : value >= range.lower) &&
                         (range.upper_open ? value < range.upper : value <= range.upper);
  return is_inside ? "" : "must be " + range_text(range) + ", found " + describe(node);
}

template <class Value>
std::string read_parsed(std::optional<Value> (*parse)(std::string_view, std::string&),
                        Value& object, const Node& node, const Range& range) {
  std::string problem;
  const std::optional<Value> value = parse(node.text, problem);
  if (!value) return problem;
  object = *value;
  return check_range(static_cast<double>(*value), range, node);
}

std::string read_text(std::string& object, const Node& node, const FieldRules& rules) {
  if (node.is_plain() && (node.text == "true" || node.text == "false")) {
    return "expected text, found " + node.text + "; quote it if it is meant";
  }
  if (node.text.empty() && !rules.may_be_empty) return "the text is empty";
  object = node.text;
  return "";
}

std::string read_duration(Duration& object, const Node& node, const FieldRules& rules) {
  const std::string units = describe_units(rules.duration_units);
  const std::optional<Duration> duration = parse_duration(node.text);
  if (!duration) {
    const std::string why = explain_duration(node.text, rules.duration_units);
    return why.empty() ? "expected a duration, a number with its unit (" + units + "), found " +
                             describe(node)
                       : "expected a duration, found " + describe(node) + ", which " + why;
  }
  if ((rules.duration_units & static_cast<unsigned>(duration->unit)) == 0) {
    return "expected a duration in " + units + ", found " + describe(node);
  }
  object = *duration;
  return check_range(duration->value(), rules.range, node);
}

std::string read_enum(const Type& type, void* object, const Node& node) {
  const auto found = std::ranges::find(type.words, node.text);
  if (found == type.words.end()) {
    const std::string meant = value_for_word(node.text, type.words);
    return "expected one of: " + join_words(type.words) + ", found " + describe(node) +
           (meant.empty() ? did_you_mean(node.text, type.words) : did_you_mean(meant, {meant}));
  }
  type.set(object, static_cast<std::size_t>(found - type.words.begin()));
  return "";
}

}  // namespace

bool is_counted(Kind kind) {
  return kind == Kind::kInteger || kind == Kind::kNumber || kind == Kind::kDuration;
}

std::string read_single(const Type& type, void* object, const Node& node, const FieldRules& rules) {
  if (node.has_unset_variable) {
    return "needs an environment variable that is not set: " + describe(node);
  }
  const Kind kind = type.kind;
  const bool wants_plain =
      kind == Kind::kInteger || kind == Kind::kNumber || kind == Kind::kBoolean;
  if (node.kind != Node::Kind::kScalar || (wants_plain && node.is_quoted)) {
    const std::string expected = type_text(type, rules);
    return "expected " + (is_counted(kind) ? with_article(expected) : expected) + ", found " +
           describe(node);
  }
  switch (kind) {
    case Kind::kInteger:
      if (node.is_plain() && !node.text.empty() && node.text == rules.zero_word) {
        *static_cast<int64_t*>(object) = 0;
        return "";
      }
      return read_parsed(parse_integer, *static_cast<int64_t*>(object), node, rules.range);
    case Kind::kNumber:
      return read_parsed(parse_number, *static_cast<double*>(object), node, rules.range);
    case Kind::kBoolean:
      return read_parsed(parse_boolean, *static_cast<bool*>(object), node, {});
    case Kind::kText:
      return read_text(*static_cast<std::string*>(object), node, rules);
    case Kind::kDuration:
      return read_duration(*static_cast<Duration*>(object), node, rules);
    case Kind::kEnum:
      return read_enum(type, object, node);
    default:
      throw std::logic_error("not a single value");
  }
}

std::string write_single(const Type& type, const void* object) {
  switch (type.kind) {
    case Kind::kInteger:
      return std::to_string(*static_cast<const int64_t*>(object));
    case Kind::kNumber:
      return number_text(*static_cast<const double*>(object));
    case Kind::kBoolean:
      return *static_cast<const bool*>(object) ? "true" : "false";
    case Kind::kText:
      return *static_cast<const std::string*>(object);
    case Kind::kDuration:
      return to_text(*static_cast<const Duration*>(object));
    case Kind::kEnum:
      return std::string(type.word(object));
    default:
      throw std::logic_error("not a single value");
  }
}

std::string with_article(const std::string& noun) {
  const bool is_vowel = std::string_view("aeiou").find(noun[0]) != std::string_view::npos;
  return (is_vowel ? "an " : "a ") + noun;
}

std::string range_text(const Range& range) {
  const bool has_lower = range.lower > -std::numeric_limits<double>::infinity();
  const bool has_upper = range.upper < std::numeric_limits<double>::infinity();
  std::string text;
  if (has_lower) text = (range.lower_open ? "above " : "at least ") + number_text(range.lower);
  if (has_lower && has_upper) text += " and ";
  if (has_upper) text += (range.upper_open ? "below " : "at most ") + number_text(range.upper);
  return text;
}

std::string type_text(const Type& type, const FieldRules& rules) {
  switch (type.kind) {
    case Kind::kInteger:
      return "integer" + (rules.zero_word.empty() ? "" : ", " + std::string(rules.zero_word));
    case Kind::kNumber:
      return "number";
    case Kind::kBoolean:
      return "true or false";
    case Kind::kText:
      return "text";
    case Kind::kDuration:
      return "duration in " + describe_units(rules.duration_units);
    case Kind::kEnum:
      return "one of: " + join_words(type.words);
    case Kind::kOptional:
      return type_text(type.element(), rules) + ", or " + std::string(rules.unset_word);
    case Kind::kList:
      return "list of " + type_text(type.element(), rules);
    case Kind::kMap:
      return type.element ? "mapping of sections" : "mapping of texts";
    case Kind::kStruct:
      return "mapping";
    case Kind::kChoice:
      break;
  }
  return type.members().noun() + ": " + join_words(type.members().names());
}

}  // namespace shoal::config
