#pragma once

#include "runtime/options/config_schema.h"

namespace shoal {

/// When the recipe's word `auto` is replaced by the value that it stands for.
enum class ResolvedOn {
  kReading,     ///< written and stored recipes hold the value
  kComparison,  ///< recipes keep `auto`; two of them are compared by its value
};

namespace config {

using Resolve = void (*)(void* options);  ///< calls resolve() of an options struct
void add_resolver(ResolvedOn when, const Type& (*type)(), Resolve resolve);
/// Calls the resolver of `object`, an options struct of type `type`, if it has one for `when`.
void resolve(ResolvedOn when, const Type& type, void* object);
/// Calls the resolvers for `when` of the object and of all options in it, inner ones first.
void resolve_all(ResolvedOn when, const Type& type, void* object);

}  // namespace config

/// Declares that `auto` in some keys of a struct follows from its other keys: the struct has `void
/// resolve()`, which sets these keys. Define one object per struct, at namespace scope of its .cpp:
///
///     const AutomaticValues<Options> automatic_options;
///
/// On reading, resolve() is called before validate(), for structs whose keys have no mistakes.
template <class Options>
class AutomaticValues {
 public:
  explicit AutomaticValues(ResolvedOn when = ResolvedOn::kReading) {
    config::add_resolver(when, &config::type_of<Options>,
                         [](void* options) { static_cast<Options*>(options)->resolve(); });
  }
};

}  // namespace shoal
