#pragma once

#include <string>

#include "runtime/options/config_schema.h"
#include "runtime/yaml/config_node.h"

/// Single values: reading them by the rules of their field, and the words for both.
namespace shoal::config {

/// Reads a scalar into `object`, which is of the leaf type `type` (no optional, list, struct or
/// choice). Returns what is wrong, "" if nothing is; a value out of range is stored all the same.
std::string read_single(const Type& type, void* object, const Node& node, const FieldRules& rules);

/// Canonical text of a leaf; read_single reads it back to an equal value.
std::string write_single(const Type& type, const void* object);

/// "above 0 and at most 1"; "" without limits.
std::string range_text(const Range& range);

/// Whether the type is an integer, a number or a duration.
bool is_counted(Kind kind);

/// What messages and `keys` call a type: "integer", "list of text", "one of: slot_major, position".
std::string type_text(const Type& type, const FieldRules& rules);

/// "an integer", "a number".
std::string with_article(const std::string& noun);

}  // namespace shoal::config
