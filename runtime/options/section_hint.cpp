#include "runtime/options/section_hint.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "runtime/base/text.h"
#include "runtime/options/config_value.h"
#include "runtime/options/registry.h"
#include "runtime/yaml/config_scalar.h"

namespace shoal::config {
namespace {

/// The value as that of `key` in the section where it is: as an override if it is one.
std::string set_text(const MisplacedValue& value, const std::string& key) {
  const Node& node = value.node;
  std::string section = node.text;  // experts.count becomes {experts: {count: 8}}
  for (std::size_t end = key.size(), dot = 0; end != std::string::npos && end > 0; end = dot) {
    dot = key.rfind('.', end - 1);
    const std::size_t begin = dot == std::string::npos ? 0 : dot + 1;
    section = "{" + key.substr(begin, end - begin) + ": " + section + "}";
  }
  if (!node.position.source || !node.position.source->is_command_line) return section;
  if (value.list == nullptr) {
    const bool is_inside_list = value.path.find('[') != std::string::npos;
    return is_inside_list ? section : join_path(value.path, key) + "=" + node.text;
  }
  // One item of a list cannot be set, so all of it is given.
  const std::string head = value.list_path + "=";
  const bool is_plain = std::ranges::all_of(
      value.list->items, [](const Node& item) { return item.kind == Node::Kind::kScalar; });
  if (!is_plain || !node.position.source->override_text.starts_with(head)) return section;
  std::vector<std::string> sections;
  for (const Node& item : value.list->items) sections.push_back("{" + key + ": " + item.text + "}");
  return "'" + head + "[" + join_words(sections) + "]'";
}

/// Whether a section has this key of its own with any of its members, and a number is its value.
bool has_number(const Type& type, std::string_view key, bool is_whole) {
  if (type.kind == Kind::kChoice) {
    return std::ranges::any_of(type.members().members(), [&](const MemberInfo* member) {
      return has_number(member->options_type(), key, is_whole);
    });
  }
  return std::ranges::any_of(type.fields, [&](const FieldInfo& field) {
    if (field.rules.is_inlined) return has_number(field.type(), key, is_whole);
    const Kind kind = field.type().kind;
    return field.name == key && (kind == Kind::kNumber || (kind == Kind::kInteger && is_whole));
  });
}

/// The key that a number in place of a section is meant for: what the section counts; "" if none.
std::string number_key_of(const Type& type, const Node& node) {
  std::string ignored;
  if (!node.is_plain() || !parse_number(node.text, ignored)) return "";
  const bool is_whole = parse_integer(node.text, ignored).has_value();
  for (const std::string_view key : {"count", "k", "factor"}) {
    if (has_number(type, key, is_whole)) return std::string(key);
  }
  const auto experts = std::ranges::find(type.fields, "experts", &FieldInfo::name);
  const bool counts_experts =
      experts != type.fields.end() && has_number(experts->type(), "count", is_whole);
  return counts_experts ? "experts.count" : "";
}

}  // namespace

std::string hint_for_section(const Type& type, const MisplacedValue& value) {
  if (value.node.kind != Node::Kind::kScalar) return "";
  const std::string number_key = number_key_of(type, value.node);
  if (!number_key.empty()) return "; write " + set_text(value, number_key);
  const MemberSet* set = choice_in(type);
  if (set == nullptr) return "";
  const std::string& key = set->name_key();
  if (set->find(value.node.text) != nullptr) return "; write " + set_text(value, key);
  return "; choose " + with_article(set->noun()) + " as {" + key + ": NAME}";
}

const MemberSet* choice_in(const Type& type) {
  if (type.kind == Kind::kChoice) return &type.members();
  for (const FieldInfo& field : type.fields) {
    const MemberSet* inner = field.rules.is_inlined ? choice_in(field.type()) : nullptr;
    if (inner != nullptr) return inner;
  }
  return nullptr;
}

}  // namespace shoal::config
