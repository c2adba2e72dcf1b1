#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/recipe/config_schema.h"

/// Open sets of classes: a recipe names a member, and the member brings its own options.
///
/// The base says how the set is called; each member registers itself in its own .cpp file:
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
///     }  // a name of its own: files of a folder are compiled as one
///
/// Objects with a registration are linked into one shared library: a static library drops them.
/// Torch-free.
namespace shoal {

template <class Base>
class Registry;

namespace config {

/// A chosen member and its options, the base class erased. Copies are deep.
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
  /// Takes `member` with its default options; keeps the options if it is taken already.
  void choose(const MemberInfo& member);

 protected:
  void set_options(const MemberInfo& member, std::shared_ptr<void> options);
  /// Throws a std::logic_error that names both types unless this member's options are `wanted`.
  const void* options_of_type(const Type& wanted) const;

 private:
  const MemberInfo* member_ = nullptr;
  std::shared_ptr<void> options_;
};

/// `what` among the members of `set`; throws ConfigError with the registered names if unknown.
const MemberInfo& find_member(const MemberSet& set, std::string_view name);

}  // namespace config

/// A recipe's choice among the members registered for Base, with the member's options:
/// `{name: top_k, k: 2}`.
template <class Base>
class Choice : public config::ChoiceValue {
 public:
  /// No default: the recipe must name a member.
  Choice() = default;
  /// A member with its default options. Throws ConfigError if none is registered by that name.
  Choice(std::string_view name) { choose(find(name)); }
  Choice(const char* name) : Choice(std::string_view(name)) {}
  template <config::detail::OptionsStruct Options>
  Choice(std::string_view name, Options options) {
    const config::MemberInfo& member = find(name);
    set_options(member, std::make_shared<Options>(std::move(options)));
    options_of_type(config::type_of<Options>());
  }

  /// The options of the chosen member; std::logic_error if another was chosen.
  template <class Member>
  const typename Member::Options& options() const {
    const config::Type& wanted = config::type_of<typename Member::Options>();
    return *static_cast<const typename Member::Options*>(options_of_type(wanted));
  }

 private:
  static const config::MemberInfo& find(std::string_view name) {
    return config::find_member(Registry<Base>::members(), name);
  }
};

/// The members registered for Base.
template <class Base>
class Registry {
 public:
  using Context = typename Base::Context;
  using Create = std::shared_ptr<Base> (*)(const void* options, const Context& context);

  /// Builds the chosen member. Throws ConfigError if the choice is empty.
  static std::shared_ptr<Base> create(const Choice<Base>& choice, const Context& context) {
    if (choice.is_empty()) {
      throw ConfigError("no " + std::string(Base::kNoun) + " is chosen; set '" +
                        std::string(Base::kNameKey) + "'");
    }
    const auto& member = static_cast<const Member&>(*choice.member());
    return member.create(choice.erased_options(), context);
  }

  static const config::MemberSet& members() { return set(); }

  static void add(config::MemberInfo info, Create create) { set().add(std::move(info), create); }

 private:
  struct Member : config::MemberInfo {
    Create create;
  };

  class Set final : public config::MemberSet {
   public:
    std::string_view noun() const override { return Base::kNoun; }
    std::string_view name_key() const override { return Base::kNameKey; }
    const config::MemberInfo* find(std::string_view name) const override {
      const auto found = by_name_.find(name);
      return found == by_name_.end() ? nullptr : &found->second;
    }
    std::vector<const config::MemberInfo*> members() const override {
      std::vector<const config::MemberInfo*> result;
      for (const auto& [name, member] : by_name_) result.push_back(&member);
      return result;
    }
    void add(config::MemberInfo info, Create create) {
      const std::string name = info.name;
      if (!by_name_.try_emplace(name, Member{std::move(info), create}).second) {
        throw std::logic_error("two members of one set are registered as '" + name + "'");
      }
    }

   private:
    std::map<std::string, Member, std::less<>> by_name_;
  };

  static Set& set() {
    static Set members;
    return members;
  }
};

/// Makes Member known under a name. One per member, at namespace scope, in the member's .cpp.
/// A member whose constructor needs no context may take the options alone.
template <class Base, class Member>
class Registration {
 public:
  Registration(std::string name, std::string doc) {
    using Options = typename Member::Options;
    static_assert(std::is_base_of_v<Base, Member>);
    static_assert(!std::is_abstract_v<Member>, "some virtual method of the base is not overridden");
    config::MemberInfo info{std::move(name), std::move(doc), &config::type_of<Options>,
                            []() -> std::shared_ptr<void> { return std::make_shared<Options>(); },
                            [](const void* from) -> std::shared_ptr<void> {
                              return std::make_shared<Options>(*static_cast<const Options*>(from));
                            }};
    Registry<Base>::add(std::move(info), &create);
  }

 private:
  static std::shared_ptr<Base> create(const void* erased, const typename Base::Context& context) {
    const auto& options = *static_cast<const typename Member::Options*>(erased);
    if constexpr (std::is_constructible_v<Member, const typename Member::Options&,
                                          const typename Base::Context&>) {
      return std::make_shared<Member>(options, context);
    } else {
      return std::make_shared<Member>(options);
    }
  }
};

namespace config::detail {

template <class Base>
struct TypeFor<Choice<Base>> {
  class Concrete final : public ChoiceType {
    const MemberSet& set() const override { return Registry<Base>::members(); }
    ChoiceValue& value(void* object) const override { return *static_cast<Choice<Base>*>(object); }
  };
  static const Type& get() {
    static const Concrete type;
    return type;
  }
};

}  // namespace config::detail

}  // namespace shoal
