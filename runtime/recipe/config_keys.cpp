#include "runtime/recipe/config_keys.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include "runtime/recipe/config_node.h"
#include "runtime/recipe/config_value.h"
#include "runtime/recipe/config_writer.h"
#include "runtime/recipe/registry.h"

namespace shoal::config {
namespace {

class Lister {
 public:
  /// `doc` describes the choice when `type` is one.
  void list(const Type& type, const void* object, const std::string& path,
            const FieldRules& rules = {}) {
    if (type.kind == Kind::kChoice) return list_choice(type, object, path, rules);
    if (std::find(open_.begin(), open_.end(), &type) != open_.end()) return;  // contains itself
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
    key.only_for = only_for_;
    key.type = type_text(type, field.rules);
    key.range = range_text(field.rules.range);
    key.unit = field.rules.unit;
    key.doc = field.rules.doc;
    key.is_required = field.rules.is_required;
    if (!key.is_required) key.default_value = value_text(*defaults.find(field.name));
    keys_.push_back(std::move(key));
    if (type.kind == Kind::kOptional || type.kind == Kind::kList) {
      const Type& element = type.element();
      const std::string suffix = type.kind == Kind::kList ? "[]" : "";
      if (element.has_keys()) list(element, element.make().get(), inner + suffix, field.rules);
    }
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
    key.only_for = only_for_;
    key.type = set.noun();
    key.default_value = value.name();
    key.is_required = value.is_empty();
    key.doc = rules.doc.empty() ? "which " + set.noun() : std::string(rules.doc);
    for (const MemberInfo* member : set.members())
      key.choices.emplace_back(member->name, member->doc);
    keys_.push_back(std::move(key));
    // A member that holds a choice of its own kind: the keys are those listed already.
    if (std::find(open_sets_.begin(), open_sets_.end(), &set) != open_sets_.end()) return;
    open_sets_.push_back(&set);
    const std::string outer = only_for_;
    for (const MemberInfo* member : set.members()) {
      const Type& options = member->options_type();
      only_for_ = set.noun() + " '" + member->name + "'";
      const bool is_default = value.member() == member;
      list(options, is_default ? value.erased_options() : options.make().get(), path);
    }
    only_for_ = outer;
    open_sets_.pop_back();
  }

  std::vector<KeyInfo> keys_;
  std::vector<const Type*> open_;
  std::vector<const MemberSet*> open_sets_;
  std::string only_for_;
};

void print_key(const KeyInfo& key, std::ostream& out) {
  out << key.path;
  if (!key.only_for.empty()) out << "   (" << key.only_for << ")";
  if (!key.doc.empty()) out << "\n    " << key.doc;
  out << "\n    " << key.type;
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

std::size_t print_keys(const std::vector<KeyInfo>& keys, const std::string& name,
                       std::ostream& out) {
  std::size_t count = 0;
  for (const auto matches : {is_at_or_below, is_within}) {
    for (const KeyInfo& key : keys) {
      if (!matches(key.path, name)) continue;
      print_key(key, out);
      ++count;
    }
    if (count > 0) break;
  }
  return count;
}

}  // namespace shoal::config
