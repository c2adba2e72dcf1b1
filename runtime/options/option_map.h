#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "runtime/options/config_schema.h"

namespace shoal {

/// One section of an OptionMap, with the name that the recipe gives it.
template <class Options>
struct NamedOptions {
  std::string name;
  Options options;

  static constexpr auto fields() {
    return std::tuple{field("name", &NamedOptions::name, ""),
                      field("options", &NamedOptions::options, "")};
  }
};

/// Sections under names that the recipe chooses, `{clean: {…}, blurred: {…}}`, in its order.
template <class Options>
struct OptionMap : std::vector<NamedOptions<Options>> {
  friend void describe_type(config::Type& type, OptionMap*) {
    config::describe_type(type, static_cast<std::vector<NamedOptions<Options>>*>(nullptr));
    type.kind = config::Kind::kMap;
  }
};

}  // namespace shoal
