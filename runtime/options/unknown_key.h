#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/options/config_keys.h"
#include "runtime/options/config_schema.h"
#include "runtime/yaml/config_node.h"

namespace shoal::config {

/// A key that does not exist in its section.
struct UnknownKey {
  std::string section;  ///< path; "" for the root
  std::string key;
  std::string note = {};  ///< says which other members of a choice have it
  /// True if the key seems left over from a class that a later choice replaced, such as
  /// `optimizer.name=sgd` on the command line. The hint is then to drop the key.
  bool is_left_over = false;
  Position position = {};
  std::vector<std::string> siblings;        ///< the keys that the section has
  std::vector<std::string> name_keys = {};  ///< siblings that choose a class: `name`
};

/// Suggests what was meant by an unknown key of a recipe: a similar key of the section, our key
/// for a word of other programs, or a key of that name in another section.
class KeyGuide {
 public:
  /// `options`: the result of reading the rest of the recipe; its choices decide which keys exist.
  KeyGuide(const Type& type, const void* options);
  /// "; did you mean 'width'?", or the section that the key belongs to; "" if nothing is similar.
  std::string hint(const UnknownKey& unknown);

 private:
  /// Suggestion for a path written as one key.
  std::string of_path(const UnknownKey& unknown) const;
  /// Suggestion: a key of its section that stands for this word.
  std::string of_section(const UnknownKey& unknown) const;
  /// Suggestion: a key of its section with a similar spelling.
  std::string of_spelling(const UnknownKey& unknown, std::size_t max_distance) const;
  /// Suggestion: a key of its section with this prefix.
  std::string of_prefix(const UnknownKey& unknown) const;
  /// Suggestion: a key in another section named `word`.
  std::string of_recipe(const UnknownKey& unknown, std::string_view word) const;
  /// Suggestion: a key named `word` of members that are not chosen.
  std::string of_others(const UnknownKey& unknown, std::string_view word);

  const Type& type_;
  std::vector<std::string> paths_;  ///< paths of all keys of the recipe: `losses[].weight`
  std::vector<KeyInfo> others_;     ///< keys of all members, listed on first use
};

/// Names of the members of `set` that have an option called `key`.
std::vector<std::string> members_with(const MemberSet& set, const std::string& key);

}  // namespace shoal::config
