#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"

/// Recipes as a tree of YAML values with their positions in files, for precise error messages.
namespace shoal::config {

/// A recipe file, or an override on the command line.
struct Source {
  std::string name;  ///< for messages: the path the user gave, or "command line"
  int order = 0;     ///< place of the file in lists of errors
  bool is_command_line = false;
  std::string override_text = {};  ///< `train.batch=64`, as typed
};

/// Position of a key or a value. Lines and columns count from 1, columns in bytes; on the command
/// line, `line` is the number of the override.
struct Position {
  std::shared_ptr<const Source> source;
  int line = 1;
  int column = 1;

  std::string text() const;    ///< "recipe.yaml:14:5", "command line: train.batch=64"
  std::string origin() const;  ///< "recipe.yaml:14" or "command line"
};

struct Entry;

/// A YAML value. `text` is a scalar's text after unquoting, or the spelling of a null ("", "~").
struct Node {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  bool is_quoted = false;           ///< true: neither a number nor a boolean nor a null
  bool has_unset_variable = false;  ///< true if text contains a ${env:X} that is not set
  bool is_broken = false;           ///< true if a mistake was reported here; readers skip it
  std::string text;
  std::vector<Node> items;
  std::vector<Entry> entries;
  Position position;

  bool is_plain() const { return kind == Kind::kScalar && !is_quoted; }
  const Entry* find(std::string_view key) const;
  Entry* find(std::string_view key);
};

/// One key of a mapping.
struct Entry {
  std::string key;
  Position position;  ///< position of the key
  Node value;
};

/// Dotted path "section.key"; "key" in the root.
std::string join_path(std::string_view section, std::string_view key);

/// Position of the value at a dotted path (`losses[0].weight` too); if no file sets it, the start
/// of the innermost section around it.
Position find_position(const Node& root, std::string_view path);

/// The value at a dotted path; nullptr if no file sets it.
const Node* find_node(const Node& root, std::string_view path);

/// Calls `visit` with `node`, which is at `path`, and every value below, each with its dotted path.
void visit_nodes(const Node& node, const std::string& path,
                 const std::function<void(const Node& node, const std::string& path)>& visit);

/// A value in words, for errors: `a list`, `'abc'`, `the quoted text "12"`. Long texts are cut.
std::string describe(const Node& node);

/// Mistakes found so far. A recipe is read to its end, then all mistakes are thrown together.
class Diagnostics {
 public:
  /// Adds a mistake in the value at `path`, and touches `path`. Beyond kMaxShown, only counts it.
  void add(const Position& position, std::string_view path, const std::string& what);
  /// Counts a mistake without a line, for a caller that holds kMaxShown mistakes to add later.
  void add_hidden() { ++num_hidden_; }
  /// Makes has_mistake_in() true for the section of `path`, without a line. Readers call it when
  /// they skip a broken node (Node::is_broken), whose mistake has its line already.
  void touch(std::string_view path);
  void set_sections(const std::vector<std::string>& names);  ///< top-level keys of recipes
  /// True if a path was touched in this section, or outside of all sections of set_sections(). An
  /// unknown top-level key or a broken override, for example, may have been meant for this section.
  bool has_mistake_in(std::string_view section) const;
  std::size_t size() const { return mistakes_.size(); }
  /// One line for each mistake in the order of the files: `FILE:LINE:COL: PATH: what`. For an
  /// override: `command line: KEY=VALUE: what`, or `command line: KEY=VALUE: PATH: what` if the
  /// mistake is not at KEY itself. A last line gives the number of mistakes beyond kMaxShown.
  std::vector<std::string> lines() const;
  /// Throws ConfigError with lines() if there are any.
  void throw_if_any(ExitCode code = ExitCode::kRecipe) const;

  static constexpr std::size_t kMaxShown = 100;

 private:
  struct Mistake {
    Position position;
    std::string path, what;
  };
  static std::string line_of(const Mistake& mistake);

  std::vector<Mistake> mistakes_;
  std::set<std::string, std::less<>> sections_;
  std::set<std::string, std::less<>> touched_;  ///< first keys of paths; "" for all sections
  std::size_t num_hidden_ = 0;
};

}  // namespace shoal::config
