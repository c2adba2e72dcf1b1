#pragma once

#include <string>

#include "runtime/options/config_schema.h"
#include "runtime/yaml/config_node.h"

namespace shoal::config {

/// A value that is not a mapping, in place of a section.
struct MisplacedValue {
  const Node& node;
  std::string path;
  const Node* list = nullptr;  ///< the list, if it is an item of one
  std::string list_path = {};
};

/// How to write a member's name, or a number, that stands in place of a section of this type: ";
/// write optimizer.name=sgd"; "" if unknown. Values from the command line are shown as overrides.
std::string hint_for_section(const Type& type, const MisplacedValue& value);

/// The set of members that a section chooses from; nullptr if it is not a choice.
const MemberSet* choice_in(const Type& type);

}  // namespace shoal::config
