#include "runtime/yaml/recipe_document.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "runtime/base/text.h"
#include "runtime/files/data_file.h"
#include "runtime/yaml/yaml_reader.h"

namespace shoal::config {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxFiles = 64;

/// The first MiB and one byte of a file; nothing, with errno set, if it cannot be read.
std::optional<std::string> read_recipe_text(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    errno = EISDIR;
    return std::nullopt;
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text(kMaxRecipeBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return std::nullopt;
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

/// Lays `over` on `base`: mappings key by key, anything else replaces.
void merge(Node& base, Node&& over) {
  if (base.kind != Node::Kind::kMap || over.kind != Node::Kind::kMap || over.is_broken) {
    base = std::move(over);
    return;
  }
  std::unordered_map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < base.entries.size(); ++i) index.emplace(base.entries[i].key, i);
  base.position = over.position;
  for (Entry& entry : over.entries) {
    const auto known = index.find(entry.key);
    if (known == index.end()) {
      base.entries.push_back(std::move(entry));
    } else {
      Entry& present = base.entries[known->second];
      present.position = entry.position;
      merge(present.value, std::move(entry.value));
    }
  }
}

/// Reads files and the files they include.
class FileLoader {
 public:
  explicit FileLoader(Diagnostics& diagnostics) : diagnostics_(diagnostics) {}

  /// `asked_at`: the include that names the file; nullptr for the recipe itself.
  std::optional<Node> load(const std::string& path, const Position* asked_at) {
    const Position start = start_of(path);
    const Position& blame = asked_at ? *asked_at : start;
    const std::string_view key = asked_at ? "include" : "";
    if (num_files_ > kMaxFiles) return fail(blame, key, "more than 64 files are included");
    if (is_named_pipe(path)) return fail(blame, key, "'" + path + "' is a named pipe, not a file");
    const std::optional<std::string> text = read_recipe_text(path);
    if (!text) {
      const std::string reason = errno ? std::strerror(errno) : "read error";
      return fail(blame, key, "cannot read '" + path + "': " + reason);
    }
    const std::string identity = identity_of(path);
    for (std::size_t i = 0; i < open_.size(); ++i) {
      if (open_[i].second == identity) return fail(blame, key, describe_cycle(i, path));
    }
    open_.emplace_back(path, identity);
    std::optional<Node> root = read_root(*text, start);
    if (root) root = with_includes(std::move(*root), path);
    open_.pop_back();
    return root;
  }

  std::optional<Node> read_root(const std::string& text, const Position& start) {
    std::optional<Node> root = read_yaml(text, start, "", diagnostics_);
    if (!root) return std::nullopt;
    if (root->kind == Node::Kind::kNull) return fail(root->position, "", "empty document");
    if (root->kind != Node::Kind::kMap) {
      return fail(root->position, "", "expected a mapping of keys, found " + describe(*root));
    }
    return root;
  }

  Position start_of(const std::string& name) {
    return {std::make_shared<Source>(Source{name, num_files_++, false}), 1, 1};
  }
  int num_sources() const { return num_files_; }

 private:
  std::nullopt_t fail(const Position& position, std::string_view path, const std::string& what) {
    diagnostics_.add(position, path, what);
    return std::nullopt;
  }

  static std::string identity_of(const std::string& path) {
    std::error_code failed;
    const fs::path canonical = fs::canonical(path, failed);
    return failed ? path : canonical.string();
  }

  std::string describe_cycle(std::size_t first, const std::string& path) const {
    std::string text = "include cycle: ";
    for (std::size_t i = first; i < open_.size(); ++i) text += open_[i].first + " -> ";
    return text + path;
  }

  /// `root` laid over what it includes; nothing if some file cannot be read.
  std::optional<Node> with_includes(Node root, const std::string& path) {
    Node base;
    bool has_base = false;
    const std::size_t num_before = diagnostics_.size();
    const std::vector<Node> includes = take_includes(root);
    bool is_whole = diagnostics_.size() == num_before;
    for (const Node& include : includes) {
      const fs::path file = (fs::path(path).parent_path() / include.text).lexically_normal();
      std::optional<Node> part = load(file.string(), &include.position);
      if (!part) {
        is_whole = false;
      } else if (has_base) {
        merge(base, std::move(*part));
      } else {
        base = std::move(*part);
        has_base = true;
      }
    }
    if (!is_whole) return std::nullopt;
    if (!has_base) return root;
    merge(base, std::move(root));
    return base;
  }

  /// Takes the `include` key out of `root`: its file names.
  std::vector<Node> take_includes(Node& root) {
    Entry* entry = root.find("include");
    if (!entry) return {};
    Node value = std::move(entry->value);
    root.entries.erase(root.entries.begin() + (entry - root.entries.data()));
    std::vector<Node> names =
        value.kind == Node::Kind::kList ? std::move(value.items) : std::vector<Node>{value};
    std::erase_if(names, [this](const Node& name) {
      const bool is_good = name.kind == Node::Kind::kScalar && !name.text.empty() &&
                           name.text.find("${") == std::string::npos;
      if (!is_good && !name.is_broken) {
        fail(name.position, "include",
             "expected a path without references, or a list of such, "
             "found " +
                 describe(name));
      }
      return !is_good;
    });
    return names;
  }

  Diagnostics& diagnostics_;
  int num_files_ = 0;
  std::vector<std::pair<std::string, std::string>> open_;  ///< path and identity
};

/// Applies `key=value` and `~key` to a tree.
class Overrider {
 public:
  Overrider(Node& root, Diagnostics& diagnostics) : root_(root), diagnostics_(diagnostics) {}

  void apply(const std::string& text, const Position& start) {
    if (text.starts_with('~')) {
      remove(text.substr(1), start);
      return;
    }
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) {
      diagnostics_.add(start, "", "is not an override; write key=value or ~key");
      return;
    }
    const std::string path = text.substr(0, equals);
    if (!check_path(path, start)) return;
    Position value_start = start;
    value_start.column += static_cast<int>(equals) + 1;
    const std::string given = text.substr(equals + 1);
    std::optional<Node> value = read_yaml(given, value_start, path, diagnostics_);
    if (value && is_cut(given, *value)) {
      diagnostics_.add(value_start, path,
                       "'" + comment_in(given, *value) +
                           "' is a comment in YAML and would be left out" +
                           quote_hint(path, given));
      value.reset();
    }
    if (value && is_folded(given, *value)) {
      diagnostics_.add(value_start, path,
                       "the value has a line end, which YAML would make a blank; write it in one "
                       "line");
      value.reset();
    }
    if (!value) value.emplace().is_broken = true;
    if (value->kind == Node::Kind::kNull) value->position = value_start;
    set(path, start, std::move(*value));
  }

 private:
  /// Whether a comment of YAML cuts off a value of one line: a # that the value does not hold.
  static bool is_cut(const std::string& given, const Node& value) {
    return given.find('\n') == std::string::npos &&
           std::ranges::count(given, '#') > count_hashes(value);
  }
  /// Whether YAML makes one line of a text of several.
  static bool is_folded(const std::string& given, const Node& value) {
    const std::size_t end = given.find_first_of("\r\n");
    const bool has_more =
        end < given.size() && given.find_first_not_of(" \t\r\n", end) < given.size();
    return value.kind == Node::Kind::kScalar && has_more &&
           value.text.find('\n') == std::string::npos;
  }
  /// The comment begins at the # behind those that the value holds.
  static std::string comment_in(const std::string& given, const Node& value) {
    std::size_t begin = given.find('#');
    for (std::ptrdiff_t i = count_hashes(value); i > 0; --i) begin = given.find('#', begin + 1);
    return given.substr(begin);
  }
  static std::ptrdiff_t count_hashes(const Node& node) {
    std::ptrdiff_t count = std::ranges::count(node.text, '#');
    for (const Node& item : node.items) count += count_hashes(item);
    for (const Entry& entry : node.entries) {
      count += std::ranges::count(entry.key, '#') + count_hashes(entry.value);
    }
    return count;
  }

  bool check_path(const std::string& path, const Position& start) {
    if (path.find('[') != std::string::npos) {
      diagnostics_.add(start, path, "one item of a list cannot be set; give the whole list");
      return false;
    }
    bool is_good = !path.empty() && path.front() != '.' && path.back() != '.' &&
                   path.find("..") == std::string::npos;
    for (const char c : path)
      is_good &= std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
    if (!is_good)
      diagnostics_.add(start, "", "'" + path + "' is not a key; write section.key=value");
    if (path == "include") {
      diagnostics_.add(start, path, "can only be given in a file");
      return false;
    }
    return is_good;
  }

  /// Goes down to the mapping that holds the last key; nullptr, noted, if there is none.
  Node* find_section(std::string_view& rest, Position& at, bool may_create) {
    Node* node = &root_;
    std::string walked;
    for (std::size_t dot = rest.find('.'); dot != rest.npos; dot = rest.find('.')) {
      const std::string_view key = rest.substr(0, dot);
      Entry* entry = node->find(key);
      if (!entry && !may_create) return nullptr;
      if (!entry) entry = &add_section(*node, key, at);
      walked = join_path(walked, key);
      node = &entry->value;
      if (node->kind != Node::Kind::kMap) {
        const bool is_absent = node->kind == Node::Kind::kNull || node->text == "none";
        diagnostics_.add(at, walked,
                         "is " + describe(*node) + ", so it has no keys to override" +
                             (is_absent ? "; give all of it: " + walked + "={...}" : ""));
        return nullptr;
      }
      rest.remove_prefix(dot + 1);
      at.column += static_cast<int>(dot) + 1;
    }
    return node;
  }

  static Entry& add_section(Node& node, std::string_view key, const Position& at) {
    Node section;
    section.kind = Node::Kind::kMap;
    section.position = at;
    return node.entries.emplace_back(Entry{std::string(key), at, std::move(section)});
  }

  void set(const std::string& path, Position at, Node value) {
    std::string_view rest = path;
    Node* section = find_section(rest, at, /*may_create=*/true);
    if (!section) return;
    if (Entry* entry = section->find(rest)) {
      entry->position = at;
      entry->value = std::move(value);
    } else {
      section->entries.push_back({std::string(rest), at, std::move(value)});
    }
  }

  void remove(const std::string& path, const Position& start) {
    Position at = start;
    ++at.column;
    if (!check_path(path, at)) return;
    std::string_view rest = path;
    const std::size_t num_before = diagnostics_.size();
    const Position key_at = at;
    Node* section = find_section(rest, at, /*may_create=*/false);
    Entry* entry = section ? section->find(rest) : nullptr;
    if (entry) {
      section->entries.erase(section->entries.begin() + (entry - section->entries.data()));
    } else if (diagnostics_.size() == num_before) {
      diagnostics_.add(
          key_at, path,
          "unknown key: there is nothing to remove" + did_you_mean(path, paths_below(root_, "")));
    }
  }

  static std::vector<std::string> paths_below(const Node& node, const std::string& path) {
    std::vector<std::string> paths;
    for (const Entry& entry : node.entries) {
      paths.push_back(join_path(path, entry.key));
      const std::vector<std::string> inner = paths_below(entry.value, paths.back());
      paths.insert(paths.end(), inner.begin(), inner.end());
    }
    return paths;
  }

  Node& root_;
  Diagnostics& diagnostics_;
};

}  // namespace

Document load_document(const RecipeSource& source, Diagnostics& diagnostics) {
  FileLoader loader(diagnostics);
  std::optional<Node> root;
  if (source.text) {
    root = loader.read_root(*source.text, loader.start_of(source.path));
    if (root && root->find("include")) {
      diagnostics.add(root->find("include")->position, "include", "is not possible here");
      root.reset();
    }
  } else if (source.path.empty()) {
    root.emplace();
  } else {
    root = loader.load(source.path, nullptr);
  }
  Document document;
  document.is_readable = root.has_value();
  if (root) document.root = std::move(*root);
  document.root.kind = Node::Kind::kMap;
  const Source command_line{"command line", loader.num_sources(), true};
  if (!document.root.position.source) {
    document.root.position = {std::make_shared<Source>(command_line), 1, 1};
  }
  Overrider overrider(document.root, diagnostics);
  int number = 0;
  for (const std::string& text : source.overrides) {
    const auto given = std::make_shared<Source>(command_line);
    given->override_text = text;
    overrider.apply(text, {given, ++number, 1});
  }
  if (document.is_readable) interpolate(document.root, source.environment, diagnostics);
  return document;
}

}  // namespace shoal::config
