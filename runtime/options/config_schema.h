#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/options/config.h"

/// Description of an options struct: its fields() list with the C++ types erased, so that reading,
/// checking, writing and describing are plain functions over `const void*`.
namespace shoal::config {

enum class Kind {
  kInteger,
  kNumber,
  kBoolean,
  kText,
  kDuration,
  kEnum,
  kOptional,
  kList,
  kMap,
  kStruct,
  kChoice,
};

class ChoiceValue;
class MemberSet;
struct Type;

/// One field of an options struct.
struct FieldInfo {
  std::string_view name;
  FieldRules rules;
  const Type& (*type)();               ///< a function, since types may contain themselves
  std::function<void*(void*)> member;  ///< from a struct to its field

  const void* member_of(const void* owner) const { return member(const_cast<void*>(owner)); }
};

/// The type of a field, one constant object per type. `object` is an object of that type. Members
/// for other kinds than `kind` are empty.
struct Type {
  Kind kind;
  std::shared_ptr<void> (*make)();  ///< returns a default-constructed object
  std::shared_ptr<void> (*copy)(const void* object);

  // Enums.
  std::vector<std::string> words;
  std::string_view (*word)(const void* object);
  void (*set)(void* object, std::size_t index_of_word);

  // Lists; an optional counts as a list of at most one element.
  const Type& (*element)();
  std::size_t (*size)(const void* object);
  const void* (*at)(const void* object, std::size_t index);
  void* (*append)(void* object);  ///< appends a default element and returns it
  void (*clear)(void* object);

  // Structs.
  std::vector<FieldInfo> fields;
  void (*validate)(const void* object, Problems& problems);
  std::string_view short_key;  ///< "from" lets a recipe write `x` for `{from: x}`; "" for none

  // Choices: a class that the recipe names, with its options (registry.h).
  const MemberSet& (*members)();
  const ChoiceValue& (*choice)(const void* object);

  bool has_keys() const { return kind == Kind::kStruct || kind == Kind::kChoice; }
};

/// A mapping from names chosen by the recipe to texts.
using TextMap = std::vector<std::pair<std::string, std::string>>;

/// The type of T, one of those listed in config.h.
template <class T>
const Type& type_of();

template <class T>
concept OptionsStruct = requires {
  T::fields();
};

// describe_type sets the members for its kind of type; the overload for Choice is in registry.h.

inline void describe_type(Type& type, int64_t*) { type.kind = Kind::kInteger; }
inline void describe_type(Type& type, double*) { type.kind = Kind::kNumber; }
inline void describe_type(Type& type, bool*) { type.kind = Kind::kBoolean; }
inline void describe_type(Type& type, std::string*) { type.kind = Kind::kText; }
inline void describe_type(Type& type, Duration*) { type.kind = Kind::kDuration; }
inline void describe_type(Type& type, TextMap*) { type.kind = Kind::kMap; }

template <class T>
void describe_type(Type& type, std::optional<T>*) {
  using Optional = std::optional<T>;
  type.kind = Kind::kOptional;
  type.element = &type_of<T>;
  type.size = [](const void* object) -> std::size_t {
    return static_cast<const Optional*>(object)->has_value() ? 1 : 0;
  };
  type.at = [](const void* object, std::size_t) -> const void* {
    return &**static_cast<const Optional*>(object);
  };
  type.append = [](void* object) -> void* { return &static_cast<Optional*>(object)->emplace(); };
  type.clear = [](void* object) { static_cast<Optional*>(object)->reset(); };
}

template <class T>
void describe_type(Type& type, std::vector<T>*) {
  static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no element references");
  using List = std::vector<T>;
  type.kind = Kind::kList;
  type.element = &type_of<T>;
  type.size = [](const void* object) { return static_cast<const List*>(object)->size(); };
  type.at = [](const void* object, std::size_t index) -> const void* {
    return &(*static_cast<const List*>(object))[index];
  };
  type.append = [](void* object) -> void* { return &static_cast<List*>(object)->emplace_back(); };
  type.clear = [](void* object) { static_cast<List*>(object)->clear(); };
}

template <class Enum>
void describe_enum(Type& type) {
  type.kind = Kind::kEnum;
  type.words.assign(kEnumWords<Enum>.begin(), kEnumWords<Enum>.end());
  type.word = [](const void* object) { return enum_name(*static_cast<const Enum*>(object)); };
  type.set = [](void* object, std::size_t index) {
    *static_cast<Enum*>(object) = static_cast<Enum>(index);
  };
}

template <class Options, class Owner, class Value>
FieldInfo erase(const Field<Owner, Value>& field) {
  static_assert(std::is_base_of_v<Owner, Options>, "fields() lists a member of another struct");
  Value Owner::*member = field.member;
  return {field.name, field.rules, &type_of<Value>,
          [member](void* object) -> void* { return &(static_cast<Options*>(object)->*member); }};
}

template <class T>
void describe_type(Type& type, T*) {
  if constexpr (std::is_enum_v<T>) {
    describe_enum<T>(type);
  } else {
    type.kind = Kind::kStruct;
    std::apply([&](const auto&... field) { (type.fields.push_back(erase<T>(field)), ...); },
               T::fields());
    type.validate = [](const void* object, Problems& problems) {
      if constexpr (requires(const T& options) { options.validate(problems); }) {
        static_cast<const T*>(object)->validate(problems);
      }
    };
    if constexpr (requires { T::kShortKey; }) type.short_key = T::kShortKey;
  }
}

template <class T>
const Type& type_of() {
  static const Type type = [] {
    Type made{};
    made.make = []() -> std::shared_ptr<void> { return std::make_shared<T>(); };
    made.copy = [](const void* object) -> std::shared_ptr<void> {
      return std::make_shared<T>(*static_cast<const T*>(object));
    };
    describe_type(made, static_cast<T*>(nullptr));
    return made;
  }();
  return type;
}

}  // namespace shoal::config
