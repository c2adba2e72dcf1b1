#include "runtime/options/config_reader.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <string_view>

#include "runtime/base/text.h"
#include "runtime/options/automatic_values.h"
#include "runtime/options/config_value.h"
#include "runtime/options/registry.h"
#include "runtime/options/section_hint.h"
#include "runtime/options/unknown_key.h"
#include "runtime/yaml/yaml_reader.h"

namespace shoal::config {
namespace {

constexpr std::string_view kTilde = "'~' alone is null in YAML; write ~/ for the home folder";

/// A value's place in the recipe.
struct Place {
  const Node* node;  ///< nullptr if the recipe does not give it
  Position begin;    ///< of its key; of the section around it, if it is not given
  std::string path;
  const Place* list = nullptr;  ///< where it is an item: of the list

  Place below(const Entry& entry) const {
    return {&entry.value, entry.position, join_path(path, entry.key)};
  }
  Place item(std::size_t index) const {
    const Node& item = node->items[index];
    return {&item, item.position, path + "[" + std::to_string(index) + "]", this};
  }
  Place absent(std::string_view key) const { return {nullptr, begin, join_path(path, key)}; }
};

/// A key that a mapping may have, and the object it is read into.
struct Slot {
  std::string_view name;
  const FieldInfo* field;
  void* object;
};

/// What a choice in a mapping has come to.
struct ChosenMember {
  const MemberSet* set;
  const MemberInfo* member;
  std::shared_ptr<const Source> named_by;  ///< nullptr: the default
};

/// Everything that shares one mapping: a struct, or a choice, with what they inline.
struct Section {
  std::vector<Slot> slots;
  std::vector<std::pair<const Type*, void*>> structs;  ///< to validate, inner ones last
  std::vector<ChosenMember> choices;
  std::vector<std::string> name_keys;
  bool is_open = false;  ///< a member is not known, so neither are its keys
};

class Reader {
 public:
  Reader(const Node& root, const Surroundings& surroundings, Diagnostics& diagnostics)
      : root_(root), surroundings_(surroundings), diagnostics_(diagnostics) {}

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
      if (!is_kept(*node)) refuse(place, "a mapping of keys", section_hint(type, place));
      return;
    }
    Section section;
    collect(type, object, place, section);
    check_names(section, place.path);
    const std::size_t num_around = around_.size();
    around_.insert(around_.end(), section.choices.begin(), section.choices.end());
    if (node) read_entries(section, place);
    read_absent(section, place);
    around_.resize(num_around);
    if (num_mistakes_ > num_before) return;
    LocatedProblems problems(root_, place.path, diagnostics_);
    for (auto at = section.structs.rbegin(); at != section.structs.rend(); ++at) {
      resolve(ResolvedOn::kReading, *at->first, at->second);
      at->first->validate(at->second, problems);
    }
  }

  /// Tells which keys were meant by unknown ones, once all members are known.
  void report_unknown(const Type& type, const void* options) {
    if (unknown_.empty()) return;
    KeyGuide guide(type, options);
    for (const UnknownKey& unknown : unknown_) {
      diagnostics_.add(unknown.position, join_path(unknown.section, unknown.key),
                       "unknown key" + unknown.note + guide.hint(unknown));
    }
  }

 private:
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
    return node.has_unset_variable && surroundings_.unset == UnsetVariable::kKeep;
  }

  void note_unset(const Place& place) {
    note(place.node->position, place.path,
         "needs an environment variable that is not set: " + describe(*place.node));
  }

  void refuse(const Place& place, const std::string& expected, const std::string& hint = "") {
    const Node& node = *place.node;
    note(node.position, place.path, "expected " + expected + ", found " + describe(node) + hint);
  }

  /// For a value in place of a section: how to write what is meant, or to leave it out.
  std::string section_hint(const Type& type, const Place& place) const {
    const Node& node = *place.node;
    const bool is_item = place.list != nullptr;
    const std::string hint = hint_for_section(
        type,
        {node, place.path, is_item ? place.list->node : nullptr, is_item ? place.list->path : ""});
    const ChosenMember* changed = changed_around(node.position);
    const bool can_drop = hint.empty() && node.kind == Node::Kind::kScalar && changed != nullptr &&
                          place.path.find('[') == place.path.npos;
    return !can_drop ? hint
                     : "; if it was for another " + changed->set->noun() + ", drop it with ~" +
                           place.path;
  }

  static bool is_typed(const Position& position) {
    return position.source && position.source->is_command_line;
  }

  /// Whether the member was chosen after the key was written in a file: on the command line, or in
  /// a file that includes the key's, which is read before it.
  static bool was_changed(const ChosenMember& choice, const Position& position) {
    if (!choice.named_by || !position.source || is_typed(position)) return false;
    return choice.named_by->is_command_line || choice.named_by->order < position.source->order;
  }

  /// The innermost choice around what is being read that was changed; nullptr without one.
  const ChosenMember* changed_around(const Position& position) const {
    for (const ChosenMember& choice : around_ | std::views::reverse) {
      if (was_changed(choice, position)) return &choice;
    }
    return nullptr;
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
    section.choices.push_back({&set, member, entry ? entry->position.source : nullptr});
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
           "unknown " + set.noun() + " " + describe(node) + "; one of: " + join_words(names) +
               did_you_mean(node.text, names));
    }
    return nullptr;
  }

  static void check_names(const Section& section, const std::string& path) {
    std::vector<std::string> names = section.name_keys;
    for (const Slot& slot : section.slots) names.emplace_back(slot.name);
    std::ranges::sort(names);
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
      const bool is_name = std::ranges::find(names, entry.key) != names.end();
      // Of an unknown member any key may be right, but one that is nearly the name's is its typo.
      const bool may_be_right = section.is_open && nearest(entry.key, names).empty();
      if (!is_name && !may_be_right) note_unknown(section, entry, place.path);
    }
  }

  void note_unknown(const Section& section, const Entry& entry, const std::string& path) {
    ++num_mistakes_;
    diagnostics_.touch(join_path(path, entry.key));
    if (unknown_.size() >= Diagnostics::kMaxShown) return diagnostics_.add_hidden();
    UnknownKey unknown{.section = path,
                       .key = entry.key,
                       .position = entry.position,
                       .siblings = section.name_keys,
                       .name_keys = section.name_keys};
    const ChosenMember* choice = choice_for(section, entry.key);
    if (choice != nullptr) unknown.note = owners_note(*choice, entry.key);
    unknown.is_left_over = choice != nullptr ? was_changed(*choice, entry.position)
                                             : changed_around(entry.position) != nullptr;
    for (const Slot& slot : section.slots) unknown.siblings.emplace_back(slot.name);
    unknown_.push_back(std::move(unknown));
  }

  /// The choice of the section another member of which has the key; nullptr if there is none.
  static const ChosenMember* choice_for(const Section& section, const std::string& key) {
    const auto found = std::ranges::find_if(section.choices, [&key](const ChosenMember& choice) {
      return !members_with(*choice.set, key).empty();
    });
    return found == section.choices.end() ? nullptr : &*found;
  }

  static std::string owners_note(const ChosenMember& choice, const std::string& key) {
    return " of " + choice.set->noun() + " '" + choice.member->name + "'; it belongs to " +
           join_words(members_with(*choice.set, key));
  }

  /// Whether an unknown key of the mapping is nearly this one: then it has the only line.
  static bool is_misspelt(const Section& section, std::string_view name, const Place& place) {
    if (!place.node) return false;
    std::vector<std::string> names = section.name_keys;
    for (const Slot& slot : section.slots) names.emplace_back(slot.name);
    const auto& entries = place.node->entries;
    return std::ranges::any_of(entries, [&](const Entry& entry) {
      const bool is_known = std::ranges::find(names, entry.key) != names.end();
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
        return type.element ? read_sections(type, object, place) : read_map(object, place, rules);
      default:
        return read_scalar(type, object, place, rules);
    }
  }

  void read_optional(const Type& type, void* object, const Place& place, const FieldRules& rules) {
    const Node& node = *place.node;
    const Type& element = type.element();
    const bool is_null = node.kind == Node::Kind::kNull && !node.text.empty();
    if (is_null && node.text == "~" && rules.is_path && element.kind == Kind::kText) {
      return note(node.position, place.path,
                  std::string(kTilde) + ", or " + std::string(rules.unset_word));
    }
    if (is_null || (node.is_plain() && node.text == rules.unset_word)) return type.clear(object);
    if (is_kept(node) && element.kind != Kind::kText) return;
    if (type.size(object) == 0) type.append(object);
    void* value = const_cast<void*>(type.at(object, 0));
    // No value begins with a letter: another word for none, as `none` where the word is `never`.
    if (is_counted(element.kind) && !node.is_broken && node.is_plain() &&
        node.text != rules.zero_word &&
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
      if (node.kind != Node::Kind::kScalar) return refuse(place, "a list");
      if (node.is_quoted && node.text.starts_with('[')) {
        return refuse(place, "a list", "; leave the quotes out");
      }
      const std::string text = node.text.substr(0, 40);
      const MemberSet* set = choice_in(type.element());
      const bool is_name = set != nullptr && set->find(node.text) != nullptr;
      return refuse(place, is_name ? "a list, as [{" + set->name_key() + ": " + text + "}]"
                                   : "a list, as [" + text + "]");
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

  /// Reads an OptionMap, whose items have the fields name and options.
  void read_sections(const Type& type, void* object, const Place& place) {
    if (place.node->kind != Node::Kind::kMap) return refuse(place, "a mapping of sections");
    type.clear(object);
    for (const Entry& entry : place.node->entries) {
      void* item = type.append(object);
      const FieldInfo &name = type.element().fields[0], &options = type.element().fields[1];
      *static_cast<std::string*>(name.member(item)) = entry.key;
      read_node(options.type(), options.member(item), place.below(entry), {});
    }
  }

  void read_scalar(const Type& type, void* object, const Place& place, const FieldRules& rules) {
    const Node& node = *place.node;
    if (is_kept(node)) {
      if (type.kind == Kind::kText) *static_cast<std::string*>(object) = node.text;
      return;
    }
    if (type.kind == Kind::kText && rules.is_path) return read_path(object, place, rules);
    const std::string problem = read_single(type, object, node, rules);
    if (!problem.empty()) note(node.position, place.path, problem + text_hint(type, place));
  }

  /// How to write a text that YAML takes for something else in an override; "" elsewhere.
  static std::string text_hint(const Type& type, const Place& place) {
    const Node& node = *place.node;
    if (type.kind != Kind::kText || node.kind == Node::Kind::kScalar || !node.position.source) {
      return "";
    }
    const std::string& typed = node.position.source->override_text;
    const std::string given = place.path + "=";
    const bool is_whole = typed.starts_with(given) && typed.size() > given.size();
    return is_whole ? quote_hint(place.path, typed.substr(given.size())) : "";
  }

  /// A text with `~/` in front replaced by the home folder.
  void read_path(void* object, const Place& place, const FieldRules& rules) {
    Node node = *place.node;
    const bool is_plain_tilde = node.kind == Node::Kind::kNull && node.text == "~";
    if (is_plain_tilde) node.kind = Node::Kind::kScalar;
    const std::string problem = read_single(type_of<std::string>(), object, node, rules);
    if (!problem.empty()) {
      return note(node.position, place.path, problem + text_hint(type_of<std::string>(), place));
    }
    std::string& path = *static_cast<std::string*>(object);
    if (has_control_character(path)) {
      return note(node.position, place.path, "a path has no control characters");
    }
    if (!path.starts_with('~')) return;
    if (path == "~") {
      return note(node.position, place.path, std::string(kTilde));
    }
    if (!path.starts_with("~/")) {
      return note(node.position, place.path,
                  "only ~/ is expanded; write ./" + path.substr(0, path.find('/')) +
                      " for a folder of that name");
    }
    const Environment& environment = surroundings_.environment;
    const std::optional<std::string> home = environment ? environment("HOME") : std::nullopt;
    if (home && !home->empty()) {
      path.replace(0, 1, *home);
    } else if (surroundings_.unset == UnsetVariable::kRefuse) {
      note(node.position, place.path,
           "'~' stands for HOME, which is not set; write the whole path");
    }
  }

  const Node& root_;
  const Surroundings& surroundings_;
  Diagnostics& diagnostics_;
  std::vector<UnknownKey> unknown_;
  std::vector<ChosenMember> around_;  ///< in the sections around what is being read
  std::size_t num_mistakes_ = 0;
};

}  // namespace

void read_into(const Type& type, void* options, const Node& root, const Surroundings& surroundings,
               Diagnostics& diagnostics) {
  std::vector<std::string> sections;
  for (const FieldInfo& field : type.fields) sections.emplace_back(field.name);
  diagnostics.set_sections(sections);
  Reader reader(root, surroundings, diagnostics);
  reader.read_section(type, options, {&root, root.position, ""});
  reader.report_unknown(type, options);
}

void LocatedProblems::add(std::string_view path, std::string_view what) {
  const std::string whole = join_path(section_, path);
  diagnostics_.add(find_position(root_, whole), whole, std::string(what));
}

}  // namespace shoal::config
