#include <fmt/format.h>

#include "launch/runs/run_data.h"
#include "runtime/base/text.h"
#include "runtime/yaml/yaml_reader.h"

namespace shoal {
namespace {

std::string text_of_leaf(const config::Node& node) {
  using Kind = config::Node::Kind;
  if (node.kind == Kind::kNull) return "null";
  if (node.kind == Kind::kMap) return "{}";
  if (node.kind == Kind::kScalar) return node.text;
  std::vector<std::string> items;
  for (const config::Node& item : node.items) items.push_back(text_of_leaf(item));
  return fmt::format("[{}]", join_words(items));
}

bool is_leaf(const config::Node& node) {
  if (node.kind == config::Node::Kind::kMap) return node.entries.empty();
  for (const config::Node& item : node.items) {
    if (!is_leaf(item) || item.kind == config::Node::Kind::kList) return false;
  }
  return true;
}

/// The comment after "  # " on the line; a # within quotes does not begin a comment.
std::string comment_of(const std::string& line) {
  const size_t at = line.rfind(" # ");
  if (at == std::string::npos || line.find('"', at) != std::string::npos) return "";
  return line.substr(at + 3);
}

struct Flattener {
  std::vector<std::string> lines;
  std::vector<RecipeValue> values;

  void add(const config::Node& node, const std::string& path, int line) {
    if (is_leaf(node)) {
      const auto place = static_cast<size_t>(line - 1);
      values.push_back(
          {path, text_of_leaf(node), place < lines.size() ? comment_of(lines[place]) : ""});
      return;
    }
    for (const config::Entry& entry : node.entries) {
      add(entry.value, config::join_path(path, entry.key), entry.position.line);
    }
    for (size_t i = 0; i < node.items.size(); ++i) {
      add(node.items[i], path + "[" + std::to_string(i) + "]", node.items[i].position.line);
    }
  }
};

}  // namespace

std::vector<RecipeValue> recipe_values(const std::string& text) {
  config::Diagnostics mistakes;
  const config::Position start{std::make_shared<const config::Source>(), 1, 1};
  const std::optional<config::Node> root = config::read_yaml(text, start, "", mistakes);
  if (!root || root->kind != config::Node::Kind::kMap) return {};
  Flattener flattener;
  flattener.lines = split(text, '\n');
  flattener.add(*root, "", 1);
  return flattener.values;
}

}  // namespace shoal
