#include "runtime/yaml/config_node.h"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "runtime/base/utf8.h"
#include "runtime/yaml/config_scalar.h"

namespace shoal::config {
namespace {

constexpr std::size_t kMaxQuotedBytes = 60;

/// The beginning of a long text, never half a character.
std::string shortened(const std::string& whole) {
  std::string text = whole.substr(0, kMaxQuotedBytes);
  while (text.size() < whole.size() && !text.empty() && continues_character(whole[text.size()])) {
    text.pop_back();
  }
  return text.size() < whole.size() ? text + "..." : text;
}

struct Found {
  const Node* node;      ///< as deep as the tree goes along the path
  Position section;      ///< where that node begins as a section: its key, if it has one
  bool is_whole = true;  ///< the whole path is there
};

Found walk(const Node& root, std::string_view path) {
  Found found{&root, root.position};
  while (!path.empty()) {
    std::string_view step = path.substr(0, path.find_first_of(".[", 1));  // "key", ".key", "[0]"
    path.remove_prefix(step.size());
    if (step[0] == '[') {
      std::size_t index = 0;
      std::from_chars(step.data() + 1, step.data() + step.size(), index);
      if (index >= found.node->items.size()) return found.is_whole = false, found;
      found.node = &found.node->items[index];
      found.section = found.node->position;
      continue;
    }
    if (step[0] == '.') step.remove_prefix(1);
    if (step.empty()) continue;
    const Entry* entry = found.node->find(step);
    if (!entry) return found.is_whole = false, found;
    found.node = &entry->value;
    found.section = entry->position;
  }
  return found;
}

}  // namespace

std::string Position::text() const {
  if (!source) return "?";
  if (!source->is_command_line) {
    return source->name + ":" + std::to_string(line) + ":" + std::to_string(column);
  }
  return source->name +
         (source->override_text.empty() ? "" : ": " + shortened(source->override_text));
}

std::string Position::origin() const {
  if (!source) return "?";
  return source->is_command_line ? source->name : source->name + ":" + std::to_string(line);
}

const Entry* Node::find(std::string_view key) const {
  const auto found =
      std::ranges::find_if(entries, [key](const Entry& entry) { return entry.key == key; });
  return found == entries.end() ? nullptr : &*found;
}

Entry* Node::find(std::string_view key) {
  return const_cast<Entry*>(static_cast<const Node*>(this)->find(key));
}

std::string join_path(std::string_view section, std::string_view key) {
  if (section.empty() || key.empty()) return std::string(section) + std::string(key);
  return std::string(section) + (key[0] == '[' ? "" : ".") + std::string(key);
}

Position find_position(const Node& root, std::string_view path) {
  const Found found = walk(root, path);
  const bool is_section = found.node->kind == Node::Kind::kMap;
  return found.is_whole && !is_section ? found.node->position : found.section;
}

const Node* find_node(const Node& root, std::string_view path) {
  const Found found = walk(root, path);
  return found.is_whole ? found.node : nullptr;
}

void visit_nodes(const Node& node, const std::string& path,
                 const std::function<void(const Node& node, const std::string& path)>& visit) {
  visit(node, path);
  for (const Entry& entry : node.entries) {
    visit_nodes(entry.value, join_path(path, entry.key), visit);
  }
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    visit_nodes(node.items[i], path + "[" + std::to_string(i) + "]", visit);
  }
}

std::string describe(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNull:
      return node.text.empty() ? "nothing: the value is empty" : "'" + node.text + "'";
    case Node::Kind::kList:
      return "a list";
    case Node::Kind::kMap:
      return "a mapping";
    case Node::Kind::kScalar:
      break;
  }
  const std::string text = shortened(node.text);
  const bool is_quoted = node.is_quoted && !node.has_unset_variable;
  return is_quoted ? "the quoted text \"" + text + "\"" : "'" + text + "'";
}

void Diagnostics::add(const Position& position, std::string_view path, const std::string& what) {
  touch(path);
  if (mistakes_.size() >= kMaxShown) return add_hidden();
  mistakes_.push_back({position, std::string(path), what});
}

std::string Diagnostics::line_of(const Mistake& mistake) {
  const auto& [position, path, what] = mistake;
  const std::string& typed = position.source ? position.source->override_text : "";
  const bool says_path = !path.empty() && (typed.starts_with(path + "=") || typed == "~" + path);
  std::string line = position.text() + ": " + (path.empty() || says_path ? "" : path + ": ") + what;
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';  // one line, no escape codes
  }
  std::size_t begin = 0;  // what is before it is UTF-8
  while ((begin += check_utf8(std::string_view(line).substr(begin)).valid) < line.size()) {
    line[begin++] = '?';
  }
  // What would reorder the message on the screen.
  std::string visible;
  std::string_view rest = line;
  while (const auto hidden = find_invisible(rest)) {
    visible.append(rest.substr(0, hidden->begin)).push_back(' ');
    rest.remove_prefix(hidden->begin + hidden->length);
  }
  return visible.append(rest);
}

void Diagnostics::touch(std::string_view path) {
  if (touched_.size() >= kMaxShown) path = "";  // a hostile recipe has any number of keys
  touched_.emplace(path.substr(0, path.find_first_of(".[")));
}

void Diagnostics::set_sections(const std::vector<std::string>& names) {
  sections_ = {names.begin(), names.end()};
}

bool Diagnostics::has_mistake_in(std::string_view section) const {
  return std::ranges::any_of(touched_, [&](const std::string& touched) {
    return touched == section || !sections_.contains(touched);
  });
}

std::vector<std::string> Diagnostics::lines() const {
  std::vector<Mistake> sorted = mistakes_;
  std::ranges::stable_sort(sorted, {}, [](const Mistake& mistake) {
    const Position& at = mistake.position;
    return std::tuple(at.source ? at.source->order : 0, at.line, at.column);
  });
  std::vector<std::string> lines;
  for (const Mistake& mistake : sorted) lines.push_back(line_of(mistake));
  if (num_hidden_ > 0) lines.push_back("and " + std::to_string(num_hidden_) + " more mistakes");
  return lines;
}

void Diagnostics::throw_if_any(ExitCode code) const {
  if (!mistakes_.empty()) throw ConfigError(lines(), code);
}

}  // namespace shoal::config
