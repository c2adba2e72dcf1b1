#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/options/config_schema.h"

namespace shoal::config {

/// A member of a choice that a key belongs to: optimizer, lamb.
struct KeyOwner {
  std::string noun, member;
  bool operator==(const KeyOwner&) const = default;
};

/// One recipe key as shown by `keys` and the reference.
struct KeyInfo {
  std::string path;              ///< "train.batch", "model.losses[].weight"
  std::vector<KeyOwner> owners;  ///< the outer choice first; empty for keys of every recipe
  std::string type;              ///< "integer", "one of: a, b"
  std::string range;             ///< "at least 1"; may be ""
  std::string unit;              ///< "samples"; may be ""
  std::string default_value;     ///< as written in a recipe; "" if required
  std::string doc;
  bool is_required = false;
  std::vector<std::pair<std::string, std::string>> choices;  ///< name and doc of each member
};

/// Every key below an options struct, in the order of its fields(). The keys of each member of a
/// choice follow the key that names the member, except for a nested choice among the same members,
/// whose keys are the same.
std::vector<KeyInfo> list_keys(const Type& type);

/// The rules of the fields on the path of a value.
struct KeyRules {
  ResumeRule resume;              ///< of the nearest field that has one
  bool keeps_evaluation = false;  ///< whether any of them has that rule
};
KeyRules key_rules(const Type& type, const void* options, std::string_view path);

/// `width` of `model.mlp.width`.
inline std::string_view last_key(std::string_view path) { return path.substr(path.rfind('.') + 1); }

/// True if a path is `name` or lies below it; every path is at or below "".
bool is_at_or_below(std::string_view path, std::string_view name);

/// The owners of keys with one path, "backbone convnext, vit; router top_k"; "" without owners.
std::string owners_text(const std::vector<const KeyInfo*>& keys);

/// Prints the keys whose path is `name` or lies below it, one paragraph each; if there are none,
/// keys of that name in other sections: `exchange.chunks`. Keys that are equal in several places
/// share a paragraph, which begins with a line for each place. Returns the number of keys printed.
std::size_t print_keys(const std::vector<KeyInfo>& keys, const std::string& name,
                       std::ostream& out);

}  // namespace shoal::config
