#include "runtime/recipe/config_reader.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/text.h"
#include "runtime/recipe/config_value.h"
#include "runtime/recipe/registry.h"

namespace shoal::config {
namespace {

/// A value's place in the recipe.
struct Place {
  const Node* node;  ///< nullptr if the recipe does not give it
  Position begin;    ///< of its key; of the section around it, if it is not given
  std::string path;

  Place below(const Entry& entry) const {
    return {&entry.value, entry.position, join_path(path, entry.key)};
  }
  Place item(std::size_t index) const {
    const Node& item = node->items[index];
    return {&item, item.position, path + "[" + std::to_string(index) + "]"};
  }
  Place absent(std::string_view key) const { return {nullptr, begin, join_path(path, key)}; }
};

/// A key that a mapping may have, and the object it is read into.
struct Slot {
  std::string_view name;
  const FieldInfo* field;
  void* object;
};

/// Everything that shares one mapping: a struct, or a choice, with what they inline.
struct Section {
  std::vector<Slot> slots;
  std::vector<std::pair<const Type*, void*>> structs;  ///< to validate, inner ones last
  std::vector<std::pair<const MemberSet*, const MemberInfo*>> choices;
  std::vector<std::string> name_keys;
  bool is_open = false;  ///< a member is not known, so neither are its keys
};

class Reader {
 public:
  Reader(const Node& root, UnsetVariable unset, Diagnostics& diagnostics)
      : root_(root), unset_(unset), diagnostics_(diagnostics) {}

  /// Reads a struct or a choice, given or not.
  void read_section(const Type& type, void* object, const Place& place) {
    const Node* node = place.node;
    const std::size_t num_before = num_mistakes_;
    if (node && node->kind == Node::Kind::kScalar && !type.short_key.empty()) {
      for (const FieldInfo& field : type.fields) {
        if (field.name != type.short_key) continue;
        return read_node(field.type(), field.member(object), place, field.rules);
      }
    }
    if (node && node->kind != Node::Kind::kMap) {
      if (!is_kept(*node)) refuse(place, "a mapping of keys");
      return;
    }
    Section section;
    collect(type, object, place, section);
    check_names(section, place.path);
    if (node) read_entries(section, place);
    read_absent(section, place);
    if (num_mistakes_ > num_before) return;
    LocatedProblems problems(root_, place.path, diagnostics_);
    for (auto at = section.structs.rbegin(); at != section.structs.rend(); ++at) {
      at->first->validate(at->second, problems);
    }
  }

  /// Looks for the nearest key of each unknown one, once all members are known.
  void report_unknown(const Type& type, const void* options) {
    if (unknown_.empty()) return;
    std::vector<std::string> all;
    collect_paths(type, options, "", all, 0);
    for (const Unknown& unknown : unknown_) {
      std::string hint = did_you_mean(unknown.key, unknown.siblings);
      for (std::size_t i = 0; hint.empty() && i < all.size(); ++i) {
        const std::size_t dot = all[i].rfind('.');
        const bool is_leaf = all[i].substr(dot == std::string::npos ? 0 : dot + 1) == unknown.key;
        if (is_leaf) hint = "; did you mean '" + all[i] + "'?";
      }
      diagnostics_.add(unknown.position, join_path(unknown.path, unknown.key),
                       "unknown key" + unknown.note + hint);
    }
  }

 private:
  struct Unknown {
    std::string path, key, note;
    Position position;
    std::vector<std::string> siblings;
  };

  void note(const Position& position, const std::string& path, const std::string& what) {
    ++num_mistakes_;
    diagnostics_.add(position, path, what);
  }

  /// For a value with a mistake that was noted where it was made.
  void pass_over(const Place& place) {
    ++num_mistakes_;
    diagnostics_.touch(place.path);
  }

  /// Whether the value needs an unset variable, and so stays as it is.
  bool is_kept(const Node& node) const {
    return node.has_unset_variable && unset_ == UnsetVariable::kKeep;
  }

  void note_unset(const Place& place) {
    note(place.node->position, place.path,
         "needs an environment variable that is not set: " + describe(*place.node));
  }

  void refuse(const Place& place, const std::string& expected) {
    const Node& node = *place.node;
    note(node.position, place.path, "expected " + expected + ", found " + describe(node));
  }

  void collect(const Type& type, void* object, const Place& place, Section& section) {
    if (type.kind == Kind::kChoice) return collect_choice(type, object, place, section);
    if (type.kind != Kind::kStruct) throw std::logic_error("only structs have keys");
    section.structs.emplace_back(&type, object);
    for (const FieldInfo& field : type.fields) {
      void* member = field.member(object);
      if (field.rules.is_inlined) {
        collect(field.type(), member, place, section);
      } else {
        section.slots.push_back({field.name, &field, member});
      }
    }
  }

  void collect_choice(const Type& type, void* object, const Place& place, Section& section) {
    auto& value = const_cast<ChoiceValue&>(type.choice(object));
    const MemberSet& set = type.members();
    section.name_keys.push_back(set.name_key());
    const Entry* entry = place.node ? place.node->find(set.name_key()) : nullptr;
    const MemberInfo* member = entry ? read_name(set, place.below(*entry)) : value.member();
    if (!entry && !member) {
      note(place.begin, join_path(place.path, set.name_key()),
           "required key is missing; one of: " + join_words(set.names()));
    }
    if (!member) {
      section.is_open = true;
      return;
    }
    value.choose(*member);
    section.choices.emplace_back(&set, member);
    collect(member->options_type(), value.erased_options(), place, section);
  }

  const MemberInfo* read_name(const MemberSet& set, const Place& place) {
    const Node& node = *place.node;
    if (node.is_broken) {
      pass_over(place);
    } else if (node.has_unset_variable) {
      note_unset(place);
    } else if (node.kind != Node::Kind::kScalar) {
      refuse(place, "the name of " + with_article(set.noun()));
    } else if (const MemberInfo* member = set.find(node.text)) {
      return member;
    } else {
      const std::vector<std::string> names = set.names();
      note(node.position, place.path,
           "no " + set.noun() + " is called " + describe(node) + "; one of: " + join_words(names) +
               did_you_mean(node.text, names));
    }
    return nullptr;
  }

  static void check_names(const Section& section, const std::string& path) {
    std::vector<std::string> names = section.name_keys;
    for (const Slot& slot : section.slots) names.emplace_back(slot.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) {
      throw std::logic_error("two fields are called '" + join_path(path, *twice) + "'");
    }
  }

  static const Slot* find_slot(const Section& section, std::string_view name) {
    for (const Slot& slot : section.slots) {
      if (slot.name == name) return &slot;
    }
    return nullptr;
  }

  void read_entries(const Section& section, const Place& place) {
    for (const Entry& entry : place.node->entries) {
      if (const Slot* slot = find_slot(section, entry.key)) {
        read_node(slot->field->type(), slot->object, place.below(entry), slot->field->rules);
        continue;
      }
      const auto& names = section.name_keys;
      const bool is_name = std::find(names.begin(), names.end(), entry.key) != names.end();
      // Of an unknown member any key may be right, but one that is nearly the name's is its typo.
      const bool may_be_right = section.is_open && nearest(entry.key, names).empty();
      if (!is_name && !may_be_right) note_unknown(section, entry, place.path);
    }
  }

  void note_unknown(const Section& section, const Entry& entry, const std::string& path) {
    ++num_mistakes_;
    diagnostics_.touch(join_path(path, entry.key));
    if (unknown_.size() >= Diagnostics::kMaxShown) return diagnostics_.add_hidden();
    Unknown unknown{path, entry.key, owners_note(section, entry.key), entry.position,
                    section.name_keys};
    for (const Slot& slot : section.slots) unknown.siblings.emplace_back(slot.name);
    unknown_.push_back(std::move(unknown));
  }

  /// For a key that another member of the same set has: which ones.
  static std::string owners_note(const Section& section, const std::string& key) {
    for (const auto& [set, chosen] : section.choices) {
      std::vector<std::string> owners;
      for (const MemberInfo* member : set->members()) {
        for (const FieldInfo& field : member->options_type().fields) {
          if (field.name == key) owners.push_back(member->name);
        }
      }
      if (!owners.empty()) {
        return " of " + set->noun() + " '" + chosen->name + "'; it belongs to " +
               join_words(owners);
      }
    }
    return "";
  }

  /// Whether an unknown key of the mapping is nearly this one: then it has the only line.
  static bool is_misspelt(const Section& section, std::string_view name, const Place& place) {
    if (!place.node) return false;
    std::vector<std::string> names = section.name_keys;
    for (const Slot& slot : section.slots) names.emplace_back(slot.name);
    const auto& entries = place.node->entries;
    return std::any_of(entries.begin(), entries.end(), [&](const Entry& entry) {
      const bool is_known = std::find(names.begin(), names.end(), entry.key) != names.end();
      return !is_known && nearest(entry.key, names) == name;
    });
  }

  void read_absent(const Section& section, const Place& place) {
    for (const Slot& slot : section.slots) {
      if (place.node && place.node->find(slot.name)) continue;
      const Type& type = slot.field->type();
      const FieldRules& rules = slot.field->rules;
      if (type.has_keys()) {
        read_section(type, slot.object, place.absent(slot.name));
      } else if (rules.is_required && !is_misspelt(section, slot.name, place)) {
        note(place.begin, join_path(place.path, slot.name),
             "required key is missing (" + std::string(rules.doc) + ")");
      }
    }
  }

  void read_node(const Type& type, void* object, const Place& place, const FieldRules& rules) {
    if (place.node->is_broken) return pass_over(place);
    switch (type.kind) {
      case Kind::kStruct:
      case Kind::kChoice:
        return read_section(type, object, place);
      case Kind::kOptional:
        return read_optional(type, object, place, rules);
      case Kind::kList:
        return read_list(type, object, place, rules);
      case Kind::kMap:
        return read_map(object, place, rules);
      default:
        return read_scalar(type, object, place, rules);
    }
  }

  void read_optional(const Type& type, void* object, const Place& place, const FieldRules& rules) {
    const Node& node = *place.node;
    const Type& element = type.element();
    const bool is_null = node.kind == Node::Kind::kNull && !node.text.empty();
    if (is_null || (node.is_plain() && node.text == rules.unset_word)) return type.clear(object);
    if (is_kept(node) && element.kind != Kind::kText) return;
    if (type.size(object) == 0) type.append(object);
    void* value = const_cast<void*>(type.at(object, 0));
    // No value begins with a letter: another word for none, as `none` where the word is `never`.
    if (is_counted(element.kind) && !node.is_broken && node.is_plain() &&
        std::isalpha(static_cast<unsigned char>(node.text[0])) != 0) {
      return note(node.position, place.path,
                  read_single(element, value, node, rules) + "; or did you mean '" +
                      std::string(rules.unset_word) + "'?");
    }
    read_node(element, value, place, rules);
  }

  void read_list(const Type& type, void* object, const Place& place, const FieldRules& rules) {
    const Node& node = *place.node;
    if (is_kept(node)) return;
    if (node.has_unset_variable) return note_unset(place);
    if (node.kind != Node::Kind::kList) {
      const bool is_single = node.kind == Node::Kind::kScalar;
      return refuse(place, is_single ? "a list, as [" + node.text.substr(0, 40) + "]" : "a list");
    }
    type.clear(object);
    if (node.items.empty() && !rules.may_have_none) {
      note(node.position, place.path, "the list is empty");
    }
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      read_node(type.element(), type.append(object), place.item(i), rules);
    }
  }

  void read_map(void* object, const Place& place, const FieldRules& rules) {
    if (place.node->kind != Node::Kind::kMap) return refuse(place, "a mapping of texts");
    TextMap& map = *static_cast<TextMap*>(object);
    map.clear();
    for (const Entry& entry : place.node->entries) {
      map.emplace_back(entry.key, "");
      read_node(type_of<std::string>(), &map.back().second, place.below(entry), rules);
    }
  }

  void read_scalar(const Type& type, void* object, const Place& place, const FieldRules& rules) {
    const Node& node = *place.node;
    if (is_kept(node)) {
      if (type.kind == Kind::kText) *static_cast<std::string*>(object) = node.text;
      return;
    }
    const std::string problem = read_single(type, object, node, rules);
    if (!problem.empty()) note(node.position, place.path, problem);
  }

  static void collect_paths(const Type& type, const void* object, const std::string& path,
                            std::vector<std::string>& all, int depth) {
    if (depth > 16) return;
    if (type.kind == Kind::kChoice) {
      const ChoiceValue& value = type.choice(object);
      all.push_back(join_path(path, type.members().name_key()));
      if (value.is_empty()) return;
      collect_paths(value.member()->options_type(), value.erased_options(), path, all, depth + 1);
    } else if (type.kind == Kind::kStruct) {
      for (const FieldInfo& field : type.fields) {
        const std::string inner = join_path(path, field.name);
        if (!field.rules.is_inlined) all.push_back(inner);
        collect_paths(field.type(), field.member_of(object), inner, all, depth + 1);
      }
    }
  }

  const Node& root_;
  const UnsetVariable unset_;
  Diagnostics& diagnostics_;
  std::vector<Unknown> unknown_;
  std::size_t num_mistakes_ = 0;
};

}  // namespace

void read_into(const Type& type, void* options, const Node& root, UnsetVariable unset,
               Diagnostics& diagnostics) {
  std::vector<std::string> sections;
  for (const FieldInfo& field : type.fields) sections.emplace_back(field.name);
  diagnostics.set_sections(sections);
  Reader reader(root, unset, diagnostics);
  reader.read_section(type, options, {&root, root.position, ""});
  reader.report_unknown(type, options);
}

void LocatedProblems::add(std::string_view path, std::string_view what) {
  const std::string whole = join_path(section_, path);
  diagnostics_.add(find_position(root_, whole), whole, std::string(what));
}

}  // namespace shoal::config
