#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/duration.h"

/// Typed options: each class declares the recipe keys it reads, with types, ranges and help texts.
///
///     struct Options {
///       int64_t top_k = 1;
///       std::string path;
///       static constexpr auto fields() {
///         return std::tuple{field("top_k", &Options::top_k, "experts per token", at_least(1)),
///                           required("path", &Options::path, "folder of the batches")};
///       }
///       void validate(Problems& problems) const;   // optional: rules between fields
///     };
///
/// A field is an int64_t, double, bool, std::string, Duration, an enum with EnumNames, a nested
/// options struct, a Choice (registry.h), or a std::optional or std::vector of one of these.
/// Defaults are the values of a default-constructed struct. Torch-free.
namespace shoal {

/// Allowed values of a number, or of a duration's count of units.
struct Range {
  double lower = -std::numeric_limits<double>::infinity();
  double upper = std::numeric_limits<double>::infinity();
  bool lower_open = false;  ///< the value may not be `lower` itself
  bool upper_open = false;
};
constexpr Range at_least(double lower) { return {.lower = lower}; }
constexpr Range above(double lower) { return {.lower = lower, .lower_open = true}; }
constexpr Range below(double upper) { return {.upper = upper, .upper_open = true}; }
constexpr Range in_range(Range lower, Range upper) {  // as in_range(above(0), below(1))
  return {lower.lower, upper.upper, lower.lower_open, upper.upper_open};
}
constexpr Range in_range(double lower, Range upper) { return in_range(at_least(lower), upper); }
constexpr Range in_range(Range lower, double upper) {
  return in_range(lower, Range{.upper = upper});
}
constexpr Range in_range(double lower, double upper) { return in_range(at_least(lower), upper); }

/// What a change of a key means for a run that is resumed.
enum class OnResume {
  kFixed,   ///< what is trained: may not differ
  kWarned,  ///< changes the rest of the training on purpose: may differ, with a warning
  kFree,    ///< where and how to run: may differ silently
};

/// How a run may be resumed with another value of a key.
struct ResumeRule {
  OnResume on_resume = OnResume::kFixed;
  bool changes_scores = false;  ///< evaluations before and after are not comparable
};

/// Rules of a field, which the functions below set: unit("samples") sets `unit`. The rules of a
/// list also hold for each element, and the rules of an optional for its value.
struct FieldRules {
  std::string_view doc;
  std::string_view unit;
  std::string_view unset_word = "null";
  std::string_view zero_word;  ///< for integers; "": 0 has no word
  Range range;
  unsigned duration_units = kAllDurationUnits;
  bool is_required = false;
  bool is_inlined = false;
  bool may_be_empty = true;   ///< for texts
  bool may_have_none = true;  ///< for lists: may be empty
  bool is_path = false;       ///< for texts that name a file or folder
  bool keeps_evaluation = false;
  std::optional<ResumeRule> resume;

  constexpr void apply(const Range& rule) { range = rule; }
  template <class Rule>
  constexpr void apply(const Rule& rule) {
    rule(*this);
  }
};

/// The unit of a number, which `shoal keys` prints: unit("samples").
constexpr auto unit(std::string_view name) {
  return [name](FieldRules& rules) { rules.unit = name; };
}
/// Units that a duration accepts: accepts(DurationUnit::kStep, DurationUnit::kEpoch).
template <class... Units>
constexpr auto accepts(Units... units) {
  const unsigned bits = (static_cast<unsigned>(units) | ...);
  return [bits](FieldRules& rules) { rules.duration_units = bits; };
}
/// Units of durations that can be converted to optimizer steps: no times, no percentages.
inline constexpr auto kCountedUnits =
    accepts(DurationUnit::kStep, DurationUnit::kEpoch, DurationUnit::kToken);
/// Units of a point in the training.
inline constexpr auto kPlaceUnits = accepts(DurationUnit::kStep, DurationUnit::kEpoch,
                                            DurationUnit::kToken, DurationUnit::kPercent);
/// The recipe's word for an optional without a value: unset_word("auto"). Default: `null`.
constexpr auto unset_word(std::string_view word) {
  return [word](FieldRules& rules) { rules.unset_word = word; };
}
/// The recipe's word for 0 of an integer, which is accepted outside the range too:
/// zero_word("none").
constexpr auto zero_word(std::string_view word) {
  return [word](FieldRules& rules) { rules.zero_word = word; };
}
/// Refuses an empty text, also as an element of a list of texts.
constexpr auto not_empty() {
  return [](FieldRules& rules) { rules.may_be_empty = false; };
}
/// A text, or each text of a list, that names a file or folder: a leading `~` is the user's home
/// folder, and control characters are refused.
constexpr auto file_path() {
  return [](FieldRules& rules) { rules.is_path = true; };
}
/// Marks a key of a model that has no effect on what given weights compute in an evaluation; it
/// affects only training, initial values or speed. `shoal eval` accepts another value of it.
constexpr auto keeps_evaluation() {
  return [](FieldRules& rules) { rules.keeps_evaluation = true; };
}
/// What a change of this key means for a resumed run. The rule of a section also covers the keys in
/// it that no nearer rule covers. Keys without any rule are fixed.
constexpr auto on_resume(OnResume rule) {
  return [rule](FieldRules& rules) { rules.resume = {rule}; };
}
/// Marks a key that only evaluations read: a resumed run may change it, with a warning.
constexpr auto changes_scores() {
  return [](FieldRules& rules) { rules.resume = {OnResume::kWarned, /*changes_scores=*/true}; };
}
/// A list that must have an element.
constexpr auto at_least_one() {
  return [](FieldRules& rules) { rules.may_have_none = false; };
}

/// One recipe key of an options struct.
template <class Owner, class Value>
struct Field {
  std::string_view name;
  Value Owner::*member;
  FieldRules rules;
};

/// A key with a default. Further arguments are rules: at_least(1), unit("samples"), ...
template <class Owner, class Value, class... Rules>
constexpr Field<Owner, Value> field(std::string_view name, Value Owner::*member,
                                    std::string_view doc, Rules... rules) {
  Field<Owner, Value> result{name, member, {}};
  result.rules.doc = doc;
  (result.rules.apply(rules), ...);
  return result;
}

/// A key that every recipe must give.
template <class Owner, class Value, class... Rules>
constexpr Field<Owner, Value> required(std::string_view name, Value Owner::*member,
                                       std::string_view doc, Rules... rules) {
  Field<Owner, Value> result = field(name, member, doc, rules...);
  result.rules.is_required = true;
  return result;
}

/// A nested struct or Choice without a section of its own: its keys stand among its owner's.
template <class Owner, class Value>
constexpr Field<Owner, Value> inlined(Value Owner::*member) {
  Field<Owner, Value> result{"", member, {}};
  result.rules.is_inlined = true;
  return result;
}

/// Options of a class without keys.
struct NoOptions {
  static constexpr auto fields() { return std::tuple{}; }
};

/// Recipe words of an enum, to be specialised beside it:
///
///     template <>
///     struct EnumNames<Order> {
///       static constexpr std::array names{std::pair{Order::kSlotMajor, "slot_major"},
///                                         std::pair{Order::kProbability, "probability"}};
///     };
template <class Enum>
struct EnumNames;

/// The recipe word of a value; throws std::logic_error if EnumNames lacks it.
template <class Enum>
std::string_view enum_name(Enum value) {
  for (const auto& [known, name] : EnumNames<Enum>::names) {
    if (known == value) return name;
  }
  throw std::logic_error("enum_name: a value without a name");
}

/// Collects the mistakes that validate() finds in an options struct. Paths are relative to it:
/// `top_k`, `router.k`, `losses[0].weight`; "" is the struct itself.
class Problems {
 public:
  virtual ~Problems() = default;
  virtual void add(std::string_view path, std::string_view what) = 0;
};

}  // namespace shoal
