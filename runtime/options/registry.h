#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/options/config_schema.h"

/// Open sets of classes, such as routers or optimizers: a recipe names a member, which has options
/// of its own. The base declares the set; each member registers itself in its own .cpp file:
///
///     class Router {
///      public:
///       using Context = RouterContext;   // what constructors get beside the options
///       static constexpr std::string_view kNameKey = "name";
///       static constexpr std::string_view kNoun = "router";
///     };
///     class TopKRouter : public Router {
///      public:
///       struct Options { ... fields() ... };
///       TopKRouter(const Options& options, const Router::Context& context);
///     };
///     namespace {
///     const Registration<Router, TopKRouter> registered_top_k{"top_k", "top-k softmax routing"};
///     }  // name the object uniquely: files of a folder are compiled as one
///
/// A base may have a struct Sketch, from which `shoal new` writes a first recipe. Members may then
/// have a `static constexpr Base::Sketch kSketch`.
///
/// Registered objects are linked into one shared library: a static library drops them. Torch-free.
namespace shoal {

namespace config {

/// One registered member of an open set of classes.
struct MemberInfo {
  std::string name;
  std::string doc;
  const Type& (*options_type)();
  /// Creates a std::shared_ptr of the base class from the member's options and the base's Context.
  std::shared_ptr<void> (*create)(const void* options, const void* context);
  const void* sketch = nullptr;  ///< its kSketch, a Base::Sketch; null without one
};

/// The members registered for one base class, sorted by name.
class MemberSet {
 public:
  MemberSet(std::string_view noun, std::string_view name_key) : noun_(noun), name_key_(name_key) {}
  const std::string& noun() const { return noun_; }          ///< "router"
  const std::string& name_key() const { return name_key_; }  ///< "name"
  /// nullptr if unknown.
  const MemberInfo* find(std::string_view name) const;
  /// Throws ConfigError with the registered names if unknown.
  const MemberInfo& at(std::string_view name) const;
  std::vector<const MemberInfo*> members() const;
  std::vector<std::string> names() const;
  void add(MemberInfo info);

 private:
  std::string noun_, name_key_;
  std::map<std::string, MemberInfo, std::less<>> by_name_;
};

/// A chosen member and its options, with the base class erased. Copies are deep.
class ChoiceValue {
 public:
  ChoiceValue() = default;
  ChoiceValue(const ChoiceValue& other);
  ChoiceValue& operator=(const ChoiceValue& other);
  ChoiceValue(ChoiceValue&&) noexcept = default;
  ChoiceValue& operator=(ChoiceValue&&) noexcept = default;
  ~ChoiceValue() = default;

  bool is_empty() const { return member_ == nullptr; }
  /// The member's registered name; "" if empty.
  const std::string& name() const;

  /// nullptr if empty.
  const MemberInfo* member() const { return member_; }
  void* erased_options() { return options_.get(); }
  const void* erased_options() const { return options_.get(); }
  /// Chooses `member` with its default options; keeps the options if it is the current one.
  void choose(const MemberInfo& member);

 protected:
  void set_options(const MemberInfo& member, std::shared_ptr<void> options);
  /// Returns the options. Throws std::logic_error unless they are of type `wanted`.
  const void* options_of_type(const Type& wanted) const;

 private:
  const MemberInfo* member_ = nullptr;
  std::shared_ptr<void> options_;
};

/// Calls `visit` with the object and every value in it, inner ones first.
void visit_all(const Type& type, void* object,
               const std::function<void(const Type& type, void* object)>& visit);
/// Returns the first options of type `Wanted` that visit_all visits; null if there are none.
template <class Wanted>
Wanted* find_options(const Type& type, void* object) {
  Wanted* found = nullptr;
  visit_all(type, object, [&found](const Type& visited, void* options) {
    const bool is_wanted = &visited == &type_of<Wanted>();
    if (is_wanted && found == nullptr) found = static_cast<Wanted*>(options);
  });
  return found;
}

}  // namespace config

/// The members registered for Base.
template <class Base>
config::MemberSet& members_of() {
  static config::MemberSet members(Base::kNoun, Base::kNameKey);
  return members;
}

/// The member's kSketch, from which `shoal new` writes a first recipe; null if it has none.
template <class Base>
const typename Base::Sketch* sketch_of(const config::MemberInfo& member) {
  return static_cast<const typename Base::Sketch*>(member.sketch);
}

/// An option whose value is a member of Base and its options: `{name: top_k, k: 2}`.
template <class Base>
class Choice : public config::ChoiceValue {
 public:
  /// Without a default: the recipe must name a member.
  Choice() = default;
  /// A default member with its default options. Throws ConfigError if the name is not registered.
  Choice(std::string_view name) { choose(members_of<Base>().at(name)); }
  Choice(const char* name) : Choice(std::string_view(name)) {}
  template <config::OptionsStruct Options>
  Choice(std::string_view name, Options options) {
    set_options(members_of<Base>().at(name), std::make_shared<Options>(std::move(options)));
    options_of_type(config::type_of<Options>());
  }

  /// The options of the chosen member. Throws std::logic_error unless Member is chosen.
  template <class Member>
  const typename Member::Options& options() const {
    const config::Type& wanted = config::type_of<typename Member::Options>();
    return *static_cast<const typename Member::Options*>(options_of_type(wanted));
  }

  friend void describe_type(config::Type& type, Choice*) {
    type.kind = config::Kind::kChoice;
    type.members = []() -> const config::MemberSet& { return members_of<Base>(); };
    type.choice = [](const void* object) -> const config::ChoiceValue& {
      return *static_cast<const Choice*>(object);
    };
  }
};

/// Builds members of Base.
template <class Base>
class Registry {
 public:
  using Context = typename Base::Context;

  /// Builds the chosen member. Throws ConfigError if the choice is empty.
  static std::shared_ptr<Base> create(const Choice<Base>& choice, const Context& context) {
    if (choice.is_empty()) {
      throw ConfigError("no " + std::string(Base::kNoun) + " is chosen; set '" +
                        std::string(Base::kNameKey) + "'");
    }
    return std::static_pointer_cast<Base>(
        choice.member()->create(choice.erased_options(), &context));
  }
};

/// Registers Member under a name. One per member, at namespace scope, in the member's .cpp. A
/// member that needs no context may have a constructor with the options alone.
template <class Base, class Member>
class Registration {
 public:
  Registration(std::string name, std::string doc) {
    static_assert(std::is_base_of_v<Base, Member>);
    static_assert(!std::is_abstract_v<Member>, "some virtual method of the base is not overridden");
    config::MemberInfo info{std::move(name), std::move(doc),
                            &config::type_of<typename Member::Options>, &create};
    if constexpr (requires { Member::kSketch; }) {
      info.sketch = static_cast<const typename Base::Sketch*>(&Member::kSketch);
    }
    members_of<Base>().add(std::move(info));
  }

 private:
  static std::shared_ptr<void> create(const void* erased, const void* context) {
    using Context = typename Base::Context;
    const auto& options = *static_cast<const typename Member::Options*>(erased);
    std::shared_ptr<Base> made;
    if constexpr (std::is_constructible_v<Member, decltype(options), const Context&>) {
      made = std::make_shared<Member>(options, *static_cast<const Context*>(context));
    } else {
      made = std::make_shared<Member>(options);
    }
    return made;
  }
};

}  // namespace shoal
