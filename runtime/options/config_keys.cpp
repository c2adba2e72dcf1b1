#include "runtime/options/config_keys.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <memory>
#include <tuple>

#include "runtime/base/text.h"
#include "runtime/options/config_value.h"
#include "runtime/options/config_writer.h"
#include "runtime/options/registry.h"
#include "runtime/yaml/config_node.h"

namespace shoal::config {
namespace {

class Lister {
 public:
  /// `doc` describes the choice when `type` is one.
  void list(const Type& type, const void* object, const std::string& path,
            const FieldRules& rules = {}) {
    if (type.kind == Kind::kChoice) return list_choice(type, object, path, rules);
    if (std::ranges::find(open_, &type) != open_.end()) return;  // contains itself
    open_.push_back(&type);
    const Node defaults = to_node(type, object);
    for (const FieldInfo& field : type.fields) {
      if (field.rules.is_inlined) {
        list(field.type(), field.member_of(object), path, field.rules);
      } else {
        list_field(field, object, path, defaults);
      }
    }
    open_.pop_back();
  }

  std::vector<KeyInfo> take() { return std::move(keys_); }

 private:
  void list_field(const FieldInfo& field, const void* object, const std::string& path,
                  const Node& defaults) {
    const Type& type = field.type();
    const std::string inner = join_path(path, field.name);
    if (type.has_keys()) {
      list(type, field.member_of(object), inner, field.rules);
      return;
    }
    KeyInfo key;
    key.path = inner;
    key.owners = owners_;
    key.type = type_text(type, field.rules);
    key.range = range_text(field.rules.range);
    key.unit = field.rules.unit;
    key.doc = field.rules.doc;
    key.is_required = field.rules.is_required;
    if (!key.is_required) key.default_value = value_text(*defaults.find(field.name));
    keys_.push_back(std::move(key));
    const Type* element = &type;
    std::string place = inner;
    while (element->kind == Kind::kOptional || element->kind == Kind::kList) {
      if (element->kind == Kind::kList) place += "[]";
      element = &element->element();
    }
    if (element->has_keys()) list(*element, element->make().get(), place, field.rules);
  }

  static std::string value_text(const Entry& entry) {
    Node root;
    root.kind = Node::Kind::kMap;
    root.entries.push_back(entry);
    const std::string text = emit(root);
    const std::string value = text.substr(entry.key.size() + 1);
    return value[0] == ' ' ? value.substr(1, value.size() - 2) : "see below";
  }

  void list_choice(const Type& type, const void* object, const std::string& path,
                   const FieldRules& rules) {
    const MemberSet& set = type.members();
    const ChoiceValue& value = type.choice(object);
    KeyInfo key;
    key.path = join_path(path, set.name_key());
    key.owners = owners_;
    key.type = set.noun();
    key.default_value = value.name();
    key.is_required = value.is_empty();
    key.doc = rules.doc.empty() ? "which " + set.noun() : std::string(rules.doc);
    for (const MemberInfo* member : set.members())
      key.choices.emplace_back(member->name, member->doc);
    keys_.push_back(std::move(key));
    // A member that holds a choice of its own kind: the keys are those listed already.
    if (std::ranges::find(open_sets_, &set) != open_sets_.end()) return;
    open_sets_.push_back(&set);
    for (const MemberInfo* member : set.members()) {
      const Type& options = member->options_type();
      owners_.push_back({set.noun(), member->name});
      const bool is_default = value.member() == member;
      list(options, is_default ? value.erased_options() : options.make().get(), path);
      owners_.pop_back();
    }
    open_sets_.pop_back();
  }

  std::vector<KeyInfo> keys_;
  std::vector<const Type*> open_;
  std::vector<const MemberSet*> open_sets_;
  std::vector<KeyOwner> owners_;
};

/// Adds the rules of the fields on the path, nearer ones last.
void follow(const Type& type, const void* object, std::string_view path, KeyRules& rules) {
  if (path.starts_with('.')) path.remove_prefix(1);
  if (type.kind == Kind::kOptional && type.size(object) > 0) {
    return follow(type.element(), type.at(object, 0), path, rules);
  }
  if (type.kind == Kind::kChoice) {
    const ChoiceValue& value = type.choice(object);
    if (value.is_empty()) return;
    return follow(value.member()->options_type(), value.erased_options(), path, rules);
  }
  if (type.kind == Kind::kList && path.starts_with('[')) {
    std::size_t index = 0;
    std::from_chars(path.data() + 1, path.data() + path.size(), index);
    if (index >= type.size(object)) return;
    return follow(type.element(), type.at(object, index), path.substr(path.find(']') + 1), rules);
  }
  if (type.kind == Kind::kMap && type.element) {
    const std::string_view name = path.substr(0, path.find('.'));
    for (std::size_t i = 0; i < type.size(object); ++i) {
      const void* item = type.at(object, i);
      const FieldInfo &known = type.element().fields[0], &options = type.element().fields[1];
      if (*static_cast<const std::string*>(known.member_of(item)) != name) continue;
      follow(options.type(), options.member_of(item), path.substr(name.size()), rules);
    }
  }
  for (const FieldInfo& field : type.fields) {
    const bool is_on_path = !field.rules.is_inlined && is_at_or_below(path, field.name);
    if (!is_on_path && !field.rules.is_inlined) continue;
    rules.resume = field.rules.resume.value_or(rules.resume);
    rules.keeps_evaluation |= field.rules.keeps_evaluation;
    follow(field.type(), field.member_of(object), path.substr(field.name.size()), rules);
  }
}

/// Keys that are the same in several places, in the order of these.
using SameKeys = std::vector<const KeyInfo*>;

bool are_same(const KeyInfo& a, const KeyInfo& b) {
  const auto content = [](const KeyInfo& key) {
    return std::tie(key.type, key.range, key.unit, key.default_value, key.doc, key.is_required,
                    key.choices);
  };
  return last_key(a.path) == last_key(b.path) && content(a) == content(b);
}

std::vector<SameKeys> group_same(const SameKeys& keys) {
  std::vector<SameKeys> groups;
  for (const KeyInfo* key : keys) {
    const auto known = std::ranges::find_if(
        groups, [key](const SameKeys& group) { return are_same(*group.front(), *key); });
    if (known == groups.end()) {
      groups.push_back({key});
    } else {
      known->push_back(key);
    }
  }
  return groups;
}

void print_group(const SameKeys& group, std::ostream& out) {
  std::vector<std::string_view> paths;
  for (const KeyInfo* key : group) {
    if (std::ranges::find(paths, key->path) == paths.end()) paths.push_back(key->path);
  }
  for (const std::string_view path : paths) {
    SameKeys here;
    std::ranges::copy_if(group, std::back_inserter(here),
                         [path](const KeyInfo* key) { return key->path == path; });
    const std::string owners = owners_text(here);
    out << path << (owners.empty() ? "" : "   (" + owners + ")") << "\n";
  }
  const KeyInfo& key = *group.front();
  if (!key.doc.empty()) out << "    " << key.doc << "\n";
  out << "    " << key.type;
  if (!key.range.empty()) out << ", " << key.range;
  if (!key.unit.empty()) out << ", in " << key.unit;
  out << (key.is_required ? "; required" : "; default " + key.default_value) << "\n";
  for (const auto& [name, doc] : key.choices) out << "      " << name << ": " << doc << "\n";
}

/// Whether a part of the path that begins behind a dot is at or below `name`.
bool is_within(std::string_view path, std::string_view name) {
  for (std::size_t dot = path.find('.'); dot != std::string_view::npos;
       dot = path.find('.', dot + 1)) {
    if (is_at_or_below(path.substr(dot + 1), name)) return true;
  }
  return false;
}

}  // namespace

bool is_at_or_below(std::string_view path, std::string_view name) {
  if (name.empty()) return true;
  if (!path.starts_with(name)) return false;
  return path.size() == name.size() || path[name.size()] == '.' || path[name.size()] == '[';
}

std::vector<KeyInfo> list_keys(const Type& type) {
  const std::shared_ptr<void> defaults = type.make();
  Lister lister;
  lister.list(type, defaults.get(), "");
  return lister.take();
}

KeyRules key_rules(const Type& type, const void* options, std::string_view path) {
  KeyRules rules;
  follow(type, options, path, rules);
  return rules;
}

std::string owners_text(const std::vector<const KeyInfo*>& keys) {
  std::vector<std::pair<std::string, std::vector<std::string>>> members_of_noun;
  for (const KeyInfo* key : keys) {
    for (const auto& [noun, member] : key->owners) {
      auto known = std::ranges::find(
          members_of_noun, noun, [](const auto& entry) -> const auto& { return entry.first; });
      if (known == members_of_noun.end()) {
        known = members_of_noun.insert(known, {noun, {}});
      }
      auto& members = known->second;
      if (std::ranges::find(members, member) == members.end()) members.push_back(member);
    }
  }
  std::string text;
  for (const auto& [noun, members] : members_of_noun) {
    text += (text.empty() ? "" : "; ") + noun + " " + join_words(members);
  }
  return text;
}

std::size_t print_keys(const std::vector<KeyInfo>& keys, const std::string& name,
                       std::ostream& out) {
  SameKeys found;
  for (const auto matches : {is_at_or_below, is_within}) {
    for (const KeyInfo& key : keys) {
      if (matches(key.path, name)) found.push_back(&key);
    }
    if (!found.empty()) break;
  }
  for (const SameKeys& group : group_same(found)) print_group(group, out);
  return found.size();
}

}  // namespace shoal::config
