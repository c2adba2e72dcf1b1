#pragma once

#include <string>

#include "runtime/options/config_schema.h"
#include "runtime/yaml/config_node.h"

namespace shoal::config {

/// A value that is no mapping where a section belongs.
struct MisplacedValue {
  const Node& node;
  std::string path;
  const Node* list = nullptr;  ///< where it is an item: of this list
  std::string list_path = {};
};

/// How to write what is meant by the name of a member, or by a number, in place of a section of
/// this type: "; write optimizer.name=sgd"; "" if that is not known. What is given on the command
/// line is written as an override.
std::string hint_for_section(const Type& type, const MisplacedValue& value);

/// The members among which a section chooses; nullptr if it does not.
const MemberSet* choice_in(const Type& type);

}  // namespace shoal::config
