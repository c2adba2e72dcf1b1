#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/options/config_keys.h"
#include "runtime/options/config_schema.h"
#include "runtime/yaml/config_node.h"

namespace shoal::config {

/// A key that does not exist in its section.
struct UnknownKey {
  std::string section;  ///< path; "" for the root
  std::string key;
  std::string note = {};  ///< for the message: classes that have the key but are not chosen
  /// True if the key seems left over from a class that a later choice replaced, such as
  /// `optimizer.name=sgd` on the command line. The hint is then to drop the key.
  bool is_left_over = false;
  Position position = {};
  std::vector<std::string> siblings;        ///< the keys that the section has
  std::vector<std::string> name_keys = {};  ///< siblings that choose a class: `name`
};

/// Suggests what was meant by an unknown key of a recipe: a similar key of the section, the recipe
/// key for a word of other programs, or a key of that name in another section.
class KeyGuide {
 public:
  /// `options`: the result of reading the rest of the recipe; its choices decide which keys exist.
  KeyGuide(const Type& type, const void* options);
  /// Returns text to append, such as "; did you mean 'width'?". "" without a suggestion.
  std::string hint(const UnknownKey& unknown);

 private:
  /// Suggestion if the key is a path, as in `model.width: 3`: to write nested sections.
  std::string of_path(const UnknownKey& unknown) const;
  /// Suggestion: a key of its section for this word of other programs.
  std::string of_section(const UnknownKey& unknown) const;
  /// Suggestion: a key of its section with a similar spelling.
  std::string of_spelling(const UnknownKey& unknown, std::size_t max_distance) const;
  /// Suggestion: a key of its section that begins with the unknown key.
  std::string of_prefix(const UnknownKey& unknown) const;
  /// Suggestion: a key in another section named `word`.
  std::string of_recipe(const UnknownKey& unknown, std::string_view word) const;
  /// Suggestion: a key named `word` of classes that the recipe does not choose.
  std::string of_others(const UnknownKey& unknown, std::string_view word);

  const Type& type_;
  std::vector<std::string> paths_;  ///< paths of all keys of the recipe: `losses[].weight`
  std::vector<KeyInfo> others_;     ///< keys of all registered classes, listed on first use
};

/// Names of the members of `set` (registered classes) that have an option called `key`.
std::vector<std::string> members_with(const MemberSet& set, const std::string& key);

}  // namespace shoal::config
