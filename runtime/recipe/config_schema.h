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

#include "runtime/recipe/config.h"

/// What reading, checking, writing and describing know of an options struct: its fields() list with
/// the C++ types erased, so that those four are plain functions over `const void*`.
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

/// The type of a field. Immutable, one object a type, alive to the end of the program. The objects
/// that its functions take are of that type.
class Type {
 public:
  explicit constexpr Type(Kind kind) : kind_(kind) {}
  virtual ~Type() = default;
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

class EnumType : public Type {
 public:
  EnumType() : Type(Kind::kEnum) {}
  virtual std::vector<std::string_view> names() const = 0;
  /// Index into names().
  virtual std::size_t get(const void* object) const = 0;
  virtual void set(void* object, std::size_t index) const = 0;
};

class OptionalType : public Type {
 public:
  OptionalType() : Type(Kind::kOptional) {}
  virtual const Type& element() const = 0;
  /// The value, nullptr if there is none.
  virtual const void* get(const void* object) const = 0;
  /// Puts a default value in and returns it.
  virtual void* emplace(void* object) const = 0;
  virtual void reset(void* object) const = 0;
  /// A default value on its own.
  virtual std::shared_ptr<void> make_element() const = 0;
};

class ListType : public Type {
 public:
  ListType() : Type(Kind::kList) {}
  virtual const Type& element() const = 0;
  virtual std::size_t size(const void* object) const = 0;
  virtual const void* at(const void* object, std::size_t index) const = 0;
  virtual void* append(void* object) const = 0;
  virtual void clear(void* object) const = 0;
  /// A default element on its own.
  virtual std::shared_ptr<void> make_element() const = 0;
};

/// A mapping of names that the recipe chooses to texts.
using TextMap = std::vector<std::pair<std::string, std::string>>;

struct FieldInfo {
  std::string_view name;
  FieldRules rules;
  const Type& (*type)();  ///< a function, since types may contain themselves
  std::function<void*(void*)> member;

  const void* member_of(const void* owner) const { return member(const_cast<void*>(owner)); }
};

class StructType : public Type {
 public:
  StructType() : Type(Kind::kStruct) {}
  virtual const std::vector<FieldInfo>& fields() const = 0;
  virtual void validate(const void* object, Problems& problems) const = 0;
  /// The key that a scalar in the struct's place stands for; empty: there is none.
  virtual std::string_view short_key() const = 0;
  /// A default-constructed object.
  virtual std::shared_ptr<void> make() const = 0;
};

/// One registered member of an open set of classes, as far as recipes see it.
struct MemberInfo {
  std::string name;
  std::string doc;
  const Type& (*options_type)();
  std::shared_ptr<void> (*make_options)();
  std::shared_ptr<void> (*copy_options)(const void*);
};

/// The members registered for one base class, by name.
class MemberSet {
 public:
  virtual ~MemberSet() = default;
  virtual std::string_view noun() const = 0;      ///< "router"
  virtual std::string_view name_key() const = 0;  ///< "name"
  virtual const MemberInfo* find(std::string_view name) const = 0;
  virtual std::vector<const MemberInfo*> members() const = 0;
};

class ChoiceValue;

class ChoiceType : public Type {
 public:
  ChoiceType() : Type(Kind::kChoice) {}
  virtual const MemberSet& set() const = 0;
  virtual ChoiceValue& value(void* object) const = 0;
  const ChoiceValue& value(const void* object) const { return value(const_cast<void*>(object)); }
};

template <class T>
const Type& type_of();

namespace detail {

template <class T>
struct TypeFor;  // specialised below, and for Choice in registry.h

template <Kind kKind>
struct LeafType {
  static const Type& get() {
    static const Type type(kKind);
    return type;
  }
};
template <>
struct TypeFor<int64_t> : LeafType<Kind::kInteger> {};
template <>
struct TypeFor<double> : LeafType<Kind::kNumber> {};
template <>
struct TypeFor<bool> : LeafType<Kind::kBoolean> {};
template <>
struct TypeFor<std::string> : LeafType<Kind::kText> {};
template <>
struct TypeFor<Duration> : LeafType<Kind::kDuration> {};
template <>
struct TypeFor<TextMap> : LeafType<Kind::kMap> {};

// Not within TypeFor, as with structs below: GCC 12 gives what a constrained specialisation holds
// internal linkage, and a type must be one object in the whole program.
template <class Enum>
struct EnumTypeFor {
  class Concrete final : public EnumType {
    std::vector<std::string_view> names() const override {
      std::vector<std::string_view> result;
      for (const auto& entry : EnumNames<Enum>::names) result.push_back(entry.second);
      return result;
    }
    std::size_t get(const void* object) const override {
      const Enum value = *static_cast<const Enum*>(object);
      std::size_t index = 0;
      for (const auto& entry : EnumNames<Enum>::names) {
        if (entry.first == value) break;
        ++index;
      }
      return index;
    }
    void set(void* object, std::size_t index) const override {
      *static_cast<Enum*>(object) = EnumNames<Enum>::names[index].first;
    }
  };
  static const Type& get() {
    static const Concrete type;
    return type;
  }
};
template <class Enum>
requires std::is_enum_v<Enum>
struct TypeFor<Enum> : EnumTypeFor<Enum> {
};

template <class T>
struct TypeFor<std::optional<T>> {
  class Concrete final : public OptionalType {
    using Optional = std::optional<T>;
    const Type& element() const override { return type_of<T>(); }
    const void* get(const void* object) const override {
      const Optional& value = *static_cast<const Optional*>(object);
      return value ? &*value : nullptr;
    }
    void* emplace(void* object) const override {
      return &static_cast<Optional*>(object)->emplace();
    }
    void reset(void* object) const override { static_cast<Optional*>(object)->reset(); }
    std::shared_ptr<void> make_element() const override { return std::make_shared<T>(); }
  };
  static const Type& get() {
    static const Concrete type;
    return type;
  }
};

template <class T>
struct TypeFor<std::vector<T>> {
  static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no element references");
  class Concrete final : public ListType {
    using List = std::vector<T>;
    const Type& element() const override { return type_of<T>(); }
    std::size_t size(const void* object) const override {
      return static_cast<const List*>(object)->size();
    }
    const void* at(const void* object, std::size_t index) const override {
      return &(*static_cast<const List*>(object))[index];
    }
    void* append(void* object) const override {
      return &static_cast<List*>(object)->emplace_back();
    }
    void clear(void* object) const override { static_cast<List*>(object)->clear(); }
    std::shared_ptr<void> make_element() const override { return std::make_shared<T>(); }
  };
  static const Type& get() {
    static const Concrete type;
    return type;
  }
};

template <class Options, class Owner, class Value>
FieldInfo erase(const Field<Owner, Value>& field) {
  static_assert(std::is_base_of_v<Owner, Options>, "fields() lists a member of another struct");
  Value Owner::*member = field.member;
  return {field.name, field.rules, &type_of<Value>,
          [member](void* object) -> void* { return &(static_cast<Options*>(object)->*member); }};
}

template <class T>
concept OptionsStruct = requires {
  T::fields();
};

template <class Options>
struct StructTypeFor {
  class Concrete final : public StructType {
   public:
    Concrete() {
      std::apply([this](const auto&... field) { (fields_.push_back(erase<Options>(field)), ...); },
                 Options::fields());
    }
    const std::vector<FieldInfo>& fields() const override { return fields_; }
    void validate(const void* object, Problems& problems) const override {
      if constexpr (requires(const Options& options) { options.validate(problems); }) {
        static_cast<const Options*>(object)->validate(problems);
      }
    }
    std::string_view short_key() const override {
      if constexpr (requires { Options::kShortKey; }) {
        return Options::kShortKey;
      } else {
        return {};
      }
    }
    std::shared_ptr<void> make() const override { return std::make_shared<Options>(); }

   private:
    std::vector<FieldInfo> fields_;
  };
  static const Type& get() {
    static const Concrete type;
    return type;
  }
};
template <OptionsStruct Options>
struct TypeFor<Options> : StructTypeFor<Options> {};

}  // namespace detail

/// The type of T, which must be one that config.h lists.
template <class T>
const Type& type_of() {
  return detail::TypeFor<T>::get();
}

}  // namespace shoal::config
