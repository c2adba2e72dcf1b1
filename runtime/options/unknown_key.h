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

/// A key that its section does not have.
struct UnknownKey {
  std::string section;  ///< path; "" for the root
  std::string key;
  std::string note = {};  ///< which members of a choice have it; may be ""
  /// It was written for another member than the one that is chosen, elsewhere, around it.
  bool is_left_over = false;
  Position position = {};
  std::vector<std::string> siblings;        ///< the keys that the section has
  std::vector<std::string> name_keys = {};  ///< of these, the ones that name a choice's member
};

/// Which key was meant by an unknown one: a near one of its section, what other programs call it,
/// or one of that name elsewhere.
class KeyGuide {
 public:
  /// `options`: what the rest of the recipe was read into; its choices decide which keys there are.
  KeyGuide(const Type& type, const void* options);
  /// "; did you mean 'width'?", or where the key belongs; "" if nothing is like it.
  std::string hint(const UnknownKey& unknown);

 private:
  /// Of a path given as one key.
  std::string of_path(const UnknownKey& unknown) const;
  /// A key of its section that stands for this word.
  std::string of_section(const UnknownKey& unknown) const;
  /// A key of its section that is spelt nearly so.
  std::string of_spelling(const UnknownKey& unknown, std::size_t max_distance) const;
  /// A key of its section that begins so.
  std::string of_prefix(const UnknownKey& unknown) const;
  /// A key elsewhere that is called `word`.
  std::string of_recipe(const UnknownKey& unknown, std::string_view word) const;
  /// The same of members that are not chosen.
  std::string of_others(const UnknownKey& unknown, std::string_view word);

  const Type& type_;
  std::vector<std::string> paths_;  ///< of all keys there are, `losses[].weight` too
  std::vector<KeyInfo> others_;     ///< of all members, listed when they are first needed
};

/// Of the members of `set`, those that have the key themselves.
std::vector<std::string> members_with(const MemberSet& set, const std::string& key);

}  // namespace shoal::config
