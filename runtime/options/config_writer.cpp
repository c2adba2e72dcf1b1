#include "runtime/options/config_writer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "runtime/options/config_value.h"
#include "runtime/options/registry.h"

namespace shoal::config {
namespace {

constexpr std::size_t kMaxCommentColumn = 56;

/// Texts that YAML or our reader take for something else without quotes.
bool is_safe_plain(std::string_view text) {
  constexpr std::array kReserved{"null", "Null", "NULL", "true", "false"};
  if (text.empty() || std::ranges::find(kReserved, text) != kReserved.end()) {
    return false;
  }
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '/';
  };
  if (!is_word(text[0])) return false;
  return std::ranges::all_of(text, [&](char c) {
    return is_word(c) || c == '-' || c == '+' || c == '%' || c == '=' || c == '@';
  });
}

Node scalar(const std::string& text) {
  Node node;
  node.kind = Node::Kind::kScalar;
  node.text = text;
  return node;
}

/// Turns options into trees. With `defaults` not null, values equal to theirs are left out.
class Writer {
 public:
  explicit Writer(bool is_minimal) : is_minimal_(is_minimal) {}

  /// `defaults` is an object of the same type, or nullptr: keep everything.
  Node section(const Type& type, const void* object, const void* defaults) const {
    Node node;
    node.kind = Node::Kind::kMap;
    write_into(node, type, object, defaults);
    return node;
  }

 private:
  void write_into(Node& node, const Type& type, const void* object, const void* defaults) const {
    if (type.kind == Kind::kChoice) return write_choice(node, type, object, defaults);
    for (const FieldInfo& field : type.fields) {
      const void* member = field.member_of(object);
      const void* other = defaults ? field.member_of(defaults) : nullptr;
      if (field.rules.is_inlined) {
        write_into(node, field.type(), member, other);
        continue;
      }
      Node written = value(field.type(), member, other, field.rules);
      if (other && can_leave_out(field, written, other)) continue;
      node.entries.push_back({std::string(field.name), {}, std::move(written)});
    }
  }

  bool can_leave_out(const FieldInfo& field, const Node& written, const void* other) const {
    if (field.rules.is_required) return false;
    const Type& type = field.type();
    if (type.has_keys()) return written.entries.empty();
    if (type.kind == Kind::kOptional && written.kind == Node::Kind::kMap) {
      return type.size(other) > 0 && written.entries.empty();
    }
    return diff(written, value(type, other, nullptr, field.rules)).empty();
  }

  void write_choice(Node& node, const Type& type, const void* object, const void* defaults) const {
    const ChoiceValue& choice = type.choice(object);
    if (choice.is_empty()) return;
    const ChoiceValue* other = defaults ? &type.choice(defaults) : nullptr;
    const bool is_default_member = other && other->member() == choice.member();
    if (!is_default_member) {
      node.entries.push_back({type.members().name_key(), {}, scalar(choice.name())});
    }
    const Type& options = choice.member()->options_type();
    std::shared_ptr<void> fresh;
    const void* baseline = is_default_member ? other->erased_options() : nullptr;
    if (is_minimal_ && !baseline) {
      fresh = options.make();
      baseline = fresh.get();
    }
    write_into(node, options, choice.erased_options(), baseline);
  }

  Node value(const Type& type, const void* object, const void* defaults,
             const FieldRules& rules) const {
    switch (type.kind) {
      case Kind::kStruct:
      case Kind::kChoice:
        return in_short(type, section(type, object, defaults));
      case Kind::kMap:
        return type.element ? sections(type, object) : map(*static_cast<const TextMap*>(object));
      case Kind::kOptional: {
        if (type.size(object) == 0) return unset(rules);
        std::shared_ptr<void> fresh;
        const void* baseline = defaults && type.size(defaults) > 0 ? type.at(defaults, 0) : nullptr;
        if (defaults && !baseline) {
          fresh = type.element().make();
          baseline = fresh.get();
        }
        return value(type.element(), type.at(object, 0), baseline, rules);
      }
      case Kind::kList: {
        Node node;
        node.kind = Node::Kind::kList;
        for (std::size_t i = 0; i < type.size(object); ++i) {
          node.items.push_back(value(type.element(), type.at(object, i), nullptr, rules));
        }
        return node;
      }
      default:
        return leaf(type, object, rules);
    }
  }

  /// Writes a section as the value of its short key, if all other keys have their defaults.
  static Node in_short(const Type& type, Node section) {
    const Entry* only = type.short_key.empty() ? nullptr : section.find(type.short_key);
    if (only == nullptr) return section;
    const Node defaults = to_node(type, type.make().get());
    for (const Entry& entry : section.entries) {
      if (&entry == only) continue;
      const Entry* other = defaults.find(entry.key);
      if (other == nullptr || !diff(entry.value, other->value).empty()) return section;
    }
    return only->value;
  }

  static Node map(const TextMap& texts) {
    Node node;
    node.kind = Node::Kind::kMap;
    for (const auto& [name, text] : texts)
      node.entries.push_back({name, {}, leaf(type_of<std::string>(), &text, {})});
    return node;
  }

  Node sections(const Type& type, const void* object) const {
    Node node;
    node.kind = Node::Kind::kMap;
    for (std::size_t i = 0; i < type.size(object); ++i) {
      const void* item = type.at(object, i);
      const FieldInfo &name = type.element().fields[0], &options = type.element().fields[1];
      node.entries.push_back({*static_cast<const std::string*>(name.member_of(item)),
                              {},
                              section(options.type(), options.member_of(item), nullptr)});
    }
    return node;
  }

  static Node unset(const FieldRules& rules) {
    Node node = scalar(std::string(rules.unset_word));
    if (node.text == "null") node.kind = Node::Kind::kNull;
    return node;
  }

  static Node leaf(const Type& type, const void* object, const FieldRules& rules) {
    Node node = scalar(write_single(type, object));
    if (type.kind == Kind::kInteger && node.text == "0" && !rules.zero_word.empty()) {
      node.text = rules.zero_word;
    } else if (type.kind == Kind::kText) {
      node.is_quoted = !is_safe_plain(node.text) || node.text == rules.unset_word;
    }
    return node;
  }

  bool is_minimal_;
};

std::string quoted_text(const Node& node) {
  std::string text = "\"";
  for (std::size_t i = 0; i < node.text.size(); ++i) {
    const char c = node.text[i];
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7f) {
      constexpr std::string_view kHex = "0123456789abcdef";
      text += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else if (c == '$' && node.text.compare(i, 2, "${") == 0 && !node.has_unset_variable) {
      text += "$$";
    } else {
      text += c;
    }
  }
  return text + "\"";
}

bool is_number_like(std::string_view text) {
  return text.size() > 1 && text[0] == '-' && is_safe_plain(text.substr(1));
}

bool is_flow(const Node& node) {
  if (node.kind == Node::Kind::kMap) return node.entries.empty();
  return node.kind != Node::Kind::kList ||
         std::ranges::none_of(node.items, [](const Node& item) { return !item.entries.empty(); });
}

std::string flow_text(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNull:
      return "null";
    case Node::Kind::kMap:
      return "{}";
    case Node::Kind::kScalar: {
      const bool is_word = node.text == "true" || node.text == "false";
      const bool is_plain =
          !node.is_quoted && (is_word || is_safe_plain(node.text) || is_number_like(node.text));
      return is_plain ? node.text : quoted_text(node);
    }
    case Node::Kind::kList:
      break;
  }
  std::string text;
  for (const Node& item : node.items) text += (text.empty() ? "" : ", ") + flow_text(item);
  return "[" + text + "]";
}

class Emitter {
 public:
  explicit Emitter(const Comment& comment) : comment_(comment) {}

  void write_map(const Node& node, const std::string& path, const std::string& indent,
                 std::string lead) {
    for (const Entry& entry : node.entries) {
      const std::string inner = join_path(path, entry.key);
      const std::string head = lead + entry.key + ":";
      lead = indent;
      if (is_flow(entry.value)) {
        lines_.push_back({head + " " + flow_text(entry.value), comment_ ? comment_(inner) : ""});
      } else if (entry.value.kind == Node::Kind::kMap) {
        lines_.push_back({head, ""});
        write_map(entry.value, inner, indent + "  ", indent + "  ");
      } else {
        lines_.push_back({head, ""});
        write_list(entry.value, inner, indent + "  ");
      }
    }
  }

  std::string text() const {
    std::size_t column = 0;
    for (const Line& line : lines_) {
      if (line.text.size() <= kMaxCommentColumn) column = std::max(column, line.text.size());
    }
    std::string text;
    for (const Line& line : lines_) {
      text += line.text;
      if (!line.comment.empty()) {
        const std::size_t width = std::max(column, line.text.size()) + 2;
        text += std::string(width - line.text.size(), ' ') + "# " + line.comment;
      }
      text += '\n';
    }
    return text;
  }

 private:
  struct Line {
    std::string text, comment;
  };

  void write_list(const Node& node, const std::string& path, const std::string& indent) {
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      const std::string inner = path + "[" + std::to_string(i) + "]";
      if (is_flow(node.items[i])) {
        lines_.push_back(
            {indent + "- " + flow_text(node.items[i]), comment_ ? comment_(inner) : ""});
      } else {
        write_map(node.items[i], inner, indent + "  ", indent + "- ");
      }
    }
  }

  const Comment& comment_;
  std::vector<Line> lines_;
};

void flatten(const Node& node, const std::string& path,
             std::vector<std::pair<std::string, std::string>>& leaves) {
  if (is_flow(node)) {
    leaves.emplace_back(path, flow_text(node));
    return;
  }
  for (const Entry& entry : node.entries) flatten(entry.value, join_path(path, entry.key), leaves);
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    flatten(node.items[i], path + "[" + std::to_string(i) + "]", leaves);
  }
}

}  // namespace

Node to_node(const Type& type, const void* options) {
  return Writer(false).section(type, options, nullptr);
}

Node to_minimal_node(const Type& type, const void* options) {
  return Writer(true).section(type, options, type.make().get());
}

void keep_unset_variables(Node& written, const Node& document) {
  if (document.has_unset_variable) {
    const bool is_single = written.kind == Node::Kind::kScalar;
    if (!is_single) written = scalar("");
    written.text = document.text;
    written.is_quoted = true;
    written.has_unset_variable = true;
  }
  for (const Entry& entry : document.entries) {
    if (Entry* same = written.find(entry.key)) keep_unset_variables(same->value, entry.value);
  }
  const std::size_t num_items = std::min(written.items.size(), document.items.size());
  for (std::size_t i = 0; i < num_items; ++i) {
    keep_unset_variables(written.items[i], document.items[i]);
  }
}

std::string emit(const Node& root, const Comment& comment) {
  if (root.entries.empty()) return "{}\n";
  Emitter emitter(comment);
  emitter.write_map(root, "", "", "");
  return emitter.text();
}

std::string origin_of(const Node& document, const std::string& path) {
  if (const Node* node = find_node(document, path)) return node->position.origin();
  for (std::size_t end = path.find_last_of(".["); end != std::string::npos;
       end = path.find_last_of(".[", end - 1)) {
    const Node* above = find_node(document, path.substr(0, end));
    if (above == nullptr) continue;
    return above->kind == Node::Kind::kScalar && above->text == "auto" ? above->position.origin()
                                                                       : "default";
  }
  return "default";
}

std::vector<Difference> diff(const Node& before, const Node& after) {
  std::vector<std::pair<std::string, std::string>> old_leaves, new_leaves;
  flatten(before, "", old_leaves);
  flatten(after, "", new_leaves);
  std::unordered_map<std::string, std::string> rest(new_leaves.begin(), new_leaves.end());
  std::vector<Difference> differences;
  for (const auto& [path, text] : old_leaves) {
    const auto same = rest.find(path);
    if (same == rest.end()) {
      differences.push_back({path, text, std::nullopt});
      continue;
    }
    if (same->second != text) differences.push_back({path, text, same->second});
    rest.erase(same);
  }
  for (const auto& [path, text] : new_leaves) {
    if (rest.contains(path)) differences.push_back({path, std::nullopt, text});
  }
  return differences;
}

}  // namespace shoal::config
