#pragma once

#include <string>

#include "runtime/options/config_schema.h"
#include "runtime/yaml/config_node.h"

namespace shoal::config {

/// A mistake in a recipe: a value where a section (a mapping) belongs, such as `optimizer: sgd`.
struct MisplacedValue {
  const Node& node;
  std::string path;            ///< dotted path of the value
  const Node* list = nullptr;  ///< the list that has the value as an item; else null
  std::string list_path = {};
};

/// Returns the end of the error message, which tells how to write the value: "; write {name: sgd}",
/// or on a command line "; write optimizer.name=sgd"; "" without a suggestion.
std::string hint_for_section(const Type& type, const MisplacedValue& value);

/// The classes that a section of this type chooses from, such as optimizers; nullptr if none.
const MemberSet* choice_in(const Type& type);

}  // namespace shoal::config
