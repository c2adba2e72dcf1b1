#include "runtime/options/unknown_key.h"

#include <algorithm>
#include <memory>

#include "runtime/base/text.h"
#include "runtime/options/key_synonyms.h"
#include "runtime/options/registry.h"

namespace shoal::config {
namespace {

constexpr std::size_t kMaxDepth = 16;
constexpr std::size_t kLeastPrefix = 4;
constexpr std::size_t kAnyDistance = 16;  // that `nearest` allows

/// The paths of all keys below a section, of choices those of the member that is chosen.
class PathCollector {
 public:
  void collect(const Type& type, const void* object, const std::string& path) {
    const bool is_open = std::ranges::find(open_, &type) != open_.end();
    if (is_open || open_.size() > kMaxDepth) return;
    open_.push_back(&type);
    if (type.kind == Kind::kChoice) {
      const ChoiceValue& value = type.choice(object);
      paths_.push_back(join_path(path, type.members().name_key()));
      if (!value.is_empty()) collect(value.member()->options_type(), value.erased_options(), path);
    }
    if (type.kind == Kind::kStruct) collect_fields(type, object, path);
    open_.pop_back();
  }
  std::vector<std::string> take() { return std::move(paths_); }

 private:
  void collect_fields(const Type& type, const void* object, const std::string& path) {
    for (const FieldInfo& field : type.fields) {
      const std::string inner = join_path(path, field.name);
      if (!field.rules.is_inlined) paths_.push_back(inner);
      collect_value(field.type(), field.member_of(object), inner);
    }
  }

  /// Collects from the elements of optionals and lists, or from a default one.
  void collect_value(const Type& type, const void* value, const std::string& path) {
    if (type.has_keys()) return collect(type, value, path);
    if (type.kind != Kind::kOptional && type.kind != Kind::kList) return;
    const Type& element = type.element();
    const bool is_given = type.size(value) > 0;
    const std::shared_ptr<void> fresh = is_given ? nullptr : element.make();
    collect_value(element, is_given ? type.at(value, 0) : fresh.get(),
                  path + (type.kind == Kind::kList ? "[]" : ""));
  }

  std::vector<const Type*> open_;
  std::vector<std::string> paths_;
};

/// Whether a path ends with whole words that are `key`.
bool ends_with_key(std::string_view path, std::string_view key) {
  if (!path.ends_with(key)) return false;
  return path.size() == key.size() || path[path.size() - key.size() - 1] == '.';
}

/// Among the paths that end with `key` the one below `section`, else the one with the fewest steps;
/// "" if there is none.
std::string best_path(const std::vector<std::string>& paths, std::string_view key,
                      std::string_view section) {
  std::string best;
  const auto rank = [section](const std::string& path) {
    return std::pair(!is_at_or_below(path, section), std::ranges::count(path, '.'));
  };
  for (const std::string& path : paths) {
    if (ends_with_key(path, key) && (best.empty() || rank(path) < rank(best))) best = path;
  }
  return best;
}

std::string did_you_mean_key(const std::string& key) { return "; did you mean '" + key + "'?"; }

/// did_you_mean_key for a key that stands for a word of other programs.
std::string did_you_mean_synonym(const std::string& path, const std::string& word) {
  const std::string key(last_key(path));
  const std::string_view difference = difference_of(word, key);
  if (difference.empty()) return did_you_mean_key(path);
  return "; did you mean '" + path + "', " + std::string(difference) + "?";
}

/// What other programs call the key that names a choice's member.
bool is_word_for_name(std::string_view word) {
  return word == "type" || word == "name" || word == "kind";
}

bool has_field(const Type& type, const std::string& key) {
  return std::ranges::any_of(type.fields, [&key](const FieldInfo& field) {
    const bool is_section = field.rules.is_inlined && field.type().kind == Kind::kStruct;
    return is_section ? has_field(field.type(), key) : field.name == key;
  });
}

}  // namespace

std::vector<std::string> members_with(const MemberSet& set, const std::string& key) {
  std::vector<std::string> names;
  for (const MemberInfo* member : set.members()) {
    if (has_field(member->options_type(), key)) names.push_back(member->name);
  }
  return names;
}

KeyGuide::KeyGuide(const Type& type, const void* options) : type_(type) {
  PathCollector collector;
  collector.collect(type, options, "");
  paths_ = collector.take();
}

std::string KeyGuide::hint(const UnknownKey& unknown) {
  const std::string whole = join_path(unknown.section, unknown.key);
  const bool can_drop = unknown.is_left_over && whole.find('[') == std::string::npos;
  const std::string drop = can_drop ? "; drop it with ~" + whole : "";
  std::string hint = of_path(unknown);
  if (!unknown.note.empty()) {  // which says where the key belongs
    if (can_drop) return drop;
    if (hint.empty()) hint = of_section(unknown);
    return hint.empty() ? of_spelling(unknown, kAnyDistance) : hint;
  }
  if (can_drop) {
    const std::string owners = of_others(unknown, whole);
    if (!owners.empty()) return owners + drop;
  }
  if (hint.empty()) hint = of_section(unknown);
  if (hint.empty()) hint = of_spelling(unknown, 1);
  std::vector<std::string_view> words{unknown.key};
  for (const std::string_view key : keys_for_word(unknown.key, unknown.section)) {
    words.push_back(key);
  }
  // A key of this very name elsewhere is likelier than one here that is hardly like it.
  if (hint.empty()) hint = of_recipe(unknown, unknown.key);
  if (hint.empty() && unknown.key.size() > 1) hint = of_others(unknown, unknown.key);
  if (hint.empty()) hint = of_spelling(unknown, kAnyDistance);
  if (hint.empty()) hint = of_prefix(unknown);
  for (const std::string_view word : words) {
    if (hint.empty()) hint = of_recipe(unknown, word);
  }
  for (const std::string_view word : words) {
    if (hint.empty()) hint = of_others(unknown, word);
  }
  return hint;
}

std::string KeyGuide::of_path(const UnknownKey& unknown) const {
  const std::string whole = join_path(unknown.section, unknown.key);
  const bool is_path = unknown.key.find('.') != std::string::npos;
  if (!is_path || std::ranges::find(paths_, whole) == paths_.end()) return "";
  std::string nested = unknown.key, ends;
  for (std::size_t dot = nested.find('.'); dot != std::string::npos; dot = nested.find('.')) {
    nested.replace(dot, 1, ": {");
    ends += '}';
  }
  return "; write it nested: " + nested + ": ..." + ends;
}

std::string KeyGuide::of_section(const UnknownKey& unknown) const {
  if (is_word_for_name(unknown.key) && !unknown.name_keys.empty()) {
    return did_you_mean_key(unknown.name_keys.front());
  }
  for (const std::string_view key : keys_for_word(unknown.key, unknown.section)) {
    const auto same = std::ranges::find(unknown.siblings, key);
    if (same != unknown.siblings.end()) return did_you_mean_synonym(*same, unknown.key);
  }
  return "";
}

std::string KeyGuide::of_spelling(const UnknownKey& unknown, std::size_t max_distance) const {
  const std::string near = nearest(unknown.key, unknown.siblings);
  const bool is_near = !near.empty() && edit_distance(unknown.key, near) <= max_distance;
  return is_near ? did_you_mean_key(near) : "";
}

std::string KeyGuide::of_prefix(const UnknownKey& unknown) const {
  if (unknown.key.size() < kLeastPrefix) return "";
  const auto longer = std::ranges::find_if(unknown.siblings, [&unknown](const std::string& key) {
    return key.starts_with(unknown.key);
  });
  return longer == unknown.siblings.end() ? "" : did_you_mean_key(*longer);
}

std::string KeyGuide::of_recipe(const UnknownKey& unknown, std::string_view word) const {
  const std::string best = best_path(paths_, word, unknown.section);
  return best.empty() ? "" : did_you_mean_synonym(best, unknown.key);
}

std::string KeyGuide::of_others(const UnknownKey& unknown, std::string_view word) {
  if (others_.empty()) others_ = list_keys(type_);
  std::vector<std::string> paths;
  for (const KeyInfo& key : others_) paths.push_back(key.path);
  const std::string best = best_path(paths, word, unknown.section);
  if (best.empty()) return "";
  std::vector<const KeyInfo*> same;
  for (const KeyInfo& key : others_) {
    if (key.path == best) same.push_back(&key);
  }
  return "; '" + best + "' belongs to " + owners_text(same);
}

}  // namespace shoal::config
