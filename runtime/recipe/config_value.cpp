#include "runtime/recipe/config_value.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "runtime/base/duration.h"
#include "runtime/base/text.h"
#include "runtime/recipe/config_scalar.h"

namespace shoal::config {
namespace {

std::string check_range(double value, const FieldRules& rules, const Node& node) {
  const Range& range = rules.range;
  const bool is_inside = (range.lower_open ? value > range.lower : value >= range.lower) &&
                         (range.upper_open ? value < range.upper : value <= range.upper);
  return is_inside ? "" : "must be " + range_text(range) + ", found " + describe(node);
}

std::string read_integer(int64_t& object, const Node& node, const FieldRules& rules) {
  std::string problem;
  const std::optional<int64_t> value = parse_integer(node.text, problem);
  if (!value) return problem;
  object = *value;
  return check_range(static_cast<double>(*value), rules, node);
}

std::string read_number(double& object, const Node& node, const FieldRules& rules) {
  std::string problem;
  const std::optional<double> value = parse_number(node.text, problem);
  if (!value) return problem;
  object = *value;
  return check_range(*value, rules, node);
}

std::string read_boolean(bool& object, const Node& node) {
  std::string problem;
  const std::optional<bool> value = parse_boolean(node.text, problem);
  if (value) object = *value;
  return problem;
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
  std::string problem;
  const std::optional<Duration> duration = parse_duration(node.text, problem);
  if (!duration) {
    return "expected a duration, a number with its unit (" + units + "), found " + describe(node);
  }
  if ((rules.duration_units & static_cast<unsigned>(duration->unit)) == 0) {
    return "expected a duration in " + units + ", found " + describe(node);
  }
  object = *duration;
  return check_range(duration->value(), rules, node);
}

std::string read_enum(const EnumType& type, void* object, const Node& node) {
  const std::vector<std::string> words = enum_words(type);
  const auto found = std::find(words.begin(), words.end(), node.text);
  if (found == words.end()) {
    return "expected one of: " + join_words(words) + ", found " + describe(node) +
           did_you_mean(node.text, words);
  }
  type.set(object, static_cast<std::size_t>(found - words.begin()));
  return "";
}

std::string expectation(const Type& type, const FieldRules& rules) {
  const std::string text = type_text(type, rules);
  const bool is_counted = type.kind() == Kind::kInteger || type.kind() == Kind::kNumber ||
                          type.kind() == Kind::kDuration;
  return is_counted ? with_article(text) : text;
}

}  // namespace

std::string read_single(const Type& type, void* object, const Node& node, const FieldRules& rules) {
  if (node.has_unset_variable) {
    return "needs an environment variable that is not set: " + describe(node);
  }
  const Kind kind = type.kind();
  const bool wants_plain =
      kind == Kind::kInteger || kind == Kind::kNumber || kind == Kind::kBoolean;
  if (node.kind != Node::Kind::kScalar || (wants_plain && node.is_quoted)) {
    return "expected " + expectation(type, rules) + ", found " + describe(node);
  }
  switch (kind) {
    case Kind::kInteger:
      return read_integer(*static_cast<int64_t*>(object), node, rules);
    case Kind::kNumber:
      return read_number(*static_cast<double*>(object), node, rules);
    case Kind::kBoolean:
      return read_boolean(*static_cast<bool*>(object), node);
    case Kind::kText:
      return read_text(*static_cast<std::string*>(object), node, rules);
    case Kind::kDuration:
      return read_duration(*static_cast<Duration*>(object), node, rules);
    case Kind::kEnum:
      return read_enum(static_cast<const EnumType&>(type), object, node);
    default:
      throw std::logic_error("not a single value");
  }
}

std::string write_single(const Type& type, const void* object) {
  switch (type.kind()) {
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
    case Kind::kEnum: {
      const auto& as_enum = static_cast<const EnumType&>(type);
      return std::string(as_enum.names().at(as_enum.get(object)));
    }
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
  switch (type.kind()) {
    case Kind::kInteger:
      return "integer";
    case Kind::kNumber:
      return "number";
    case Kind::kBoolean:
      return "true or false";
    case Kind::kText:
      return "text";
    case Kind::kDuration:
      return "duration in " + describe_units(rules.duration_units);
    case Kind::kEnum:
      return "one of: " + join_words(enum_words(static_cast<const EnumType&>(type)));
    case Kind::kOptional:
      return type_text(static_cast<const OptionalType&>(type).element(), rules) + ", or " +
             std::string(rules.unset_word);
    case Kind::kList:
      return "list of " + type_text(static_cast<const ListType&>(type).element(), rules);
    case Kind::kMap:
      return "mapping of texts";
    case Kind::kStruct:
      return "mapping";
    case Kind::kChoice:
      break;
  }
  const MemberSet& set = static_cast<const ChoiceType&>(type).set();
  return std::string(set.noun()) + ": " + join_words(member_names(set));
}

std::vector<std::string> enum_words(const EnumType& type) {
  std::vector<std::string> words;
  for (const std::string_view name : type.names()) words.emplace_back(name);
  return words;
}

std::vector<std::string> member_names(const MemberSet& set) {
  std::vector<std::string> names;
  for (const MemberInfo* member : set.members()) names.push_back(member->name);
  return names;
}

}  // namespace shoal::config
