#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/options/config_schema.h"

namespace shoal::config {

/// A class that has a key and that recipes choose by name: noun "optimizer", member "lamb".
struct KeyOwner {
  std::string noun, member;
  bool operator==(const KeyOwner&) const = default;
};

/// One recipe key, as `shoal keys` shows it.
struct KeyInfo {
  std::string path;              ///< "train.batch", "model.losses[].weight"
  std::vector<KeyOwner> owners;  ///< outer ones first; empty: a key of every recipe
  std::string type;              ///< "integer", "one of: a, b"
  std::string range;             ///< "at least 1"; may be ""
  std::string unit;              ///< "samples"; may be ""
  std::string default_value;     ///< as written in a recipe; "" if required
  std::string doc;
  bool is_required = false;
  std::vector<std::pair<std::string, std::string>> choices;  ///< name and doc of each member
};

/// Lists every key below an options struct, in the order of its fields(). Where a recipe chooses a
/// class by name (router, optimizer), the options of each class follow the key for the name. If a
/// class itself chooses among the same classes, their options are not listed again.
std::vector<KeyInfo> list_keys(const Type& type);

/// Rules of a key, from the key's own field and the fields of the sections around it.
struct KeyRules {
  /// Whether a resumed run may change the key (no, with a warning, silently), and whether scores
  /// stay comparable; from the innermost field that has a resume rule.
  ResumeRule resume;
  bool keeps_evaluation = false;  ///< true if outputs of given weights do not depend on the key
};
/// Returns the rules of the key at `path` in `options`, an object of the struct that `type`
/// describes. Its values choose classes by name, and so decide which fields there are.
KeyRules key_rules(const Type& type, const void* options, std::string_view path);

/// Last part of a path: `width` of `model.mlp.width`.
inline std::string_view last_key(std::string_view path) { return path.substr(path.rfind('.') + 1); }

/// True if a path is `name` or lies below it; every path is at or below "".
bool is_at_or_below(std::string_view path, std::string_view name);

/// Words for the owners of keys, such as "backbone convnext, vit; router top_k"; "" without owners.
std::string owners_text(const std::vector<const KeyInfo*>& keys);

/// Prints the keys whose path is `name` or lies below it, one paragraph each; if there are none,
/// looks for `name` inside other sections: `exchange.chunks` finds `model.moe.exchange.chunks`.
/// Equal keys in several places share a paragraph with a line for each. Returns the number of keys.
std::size_t print_keys(const std::vector<KeyInfo>& keys, const std::string& name,
                       std::ostream& out);

}  // namespace shoal::config
