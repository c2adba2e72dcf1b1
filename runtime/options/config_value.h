#pragma once

#include <string>

#include "runtime/options/config_schema.h"
#include "runtime/yaml/config_node.h"

/// Reading and writing of single values by the rules of their field.
namespace shoal::config {

/// Reads a scalar into `object`, which is of the leaf type `type` (no optional, list, struct or
/// choice). Returns the problem, or ""; a value out of range is stored nevertheless.
std::string read_single(const Type& type, void* object, const Node& node, const FieldRules& rules);

/// Canonical text of a leaf, which read_single reads back to an equal value.
std::string write_single(const Type& type, const void* object);

/// Text of a range, "above 0 and at most 1"; "" without limits.
std::string range_text(const Range& range);

/// True for integers, numbers and durations.
bool is_counted(Kind kind);

/// Name of a type in messages: "integer", "list of text", "one of: slot_major, position".
std::string type_text(const Type& type, const FieldRules& rules);

/// The noun with its article: "an integer", "a number".
std::string with_article(const std::string& noun);

}  // namespace shoal::config
