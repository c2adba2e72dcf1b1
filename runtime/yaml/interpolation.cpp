#include <cctype>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "runtime/base/text.h"
#include "runtime/base/utf8.h"
#include "runtime/yaml/recipe_document.h"
#include "runtime/yaml/yaml_reader.h"

namespace shoal::config {
namespace {

constexpr std::size_t kMaxTextBytes = 64 * 1024;
constexpr std::size_t kMaxChain = 64;
constexpr int kMaxReferences = 1000;
constexpr std::string_view kEnvPrefix = "env:";

/// One piece of a scalar: literal text, or what is between `${` and `}`.
struct Piece {
  bool is_reference = false;
  std::string text;
};

/// Cuts a text at its variables; nullopt for a `${` without its end.
std::optional<std::vector<Piece>> cut(const std::string& text) {
  std::vector<Piece> pieces;
  std::string literal;
  for (std::size_t i = 0; i < text.size();) {
    if (text.compare(i, 3, "$${") == 0) {
      literal += "${";
      i += 3;
    } else if (text.compare(i, 2, "${") == 0) {
      const std::size_t end = text.find('}', i);
      if (end == std::string::npos) return std::nullopt;
      if (!literal.empty()) pieces.push_back({false, std::exchange(literal, "")});
      pieces.push_back({true, text.substr(i + 2, end - i - 2)});
      i = end + 1;
    } else {
      literal += text[i++];
    }
  }
  if (!literal.empty() || pieces.empty()) pieces.push_back({false, literal});
  return pieces;
}

bool is_name(std::string_view text, std::string_view also) {
  if (text.empty()) return false;
  for (const char c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && also.find(c) == also.npos) return false;
  }
  return true;
}

void move_to(Node& node, const Position& position) {
  node.position = position;
  for (Node& item : node.items) move_to(item, position);
  for (Entry& entry : node.entries) {
    entry.position = position;
    move_to(entry.value, position);
  }
}

std::size_t count_nodes(const Node& node) {
  std::size_t count = 1;
  for (const Node& item : node.items) count += count_nodes(item);
  for (const Entry& entry : node.entries) count += count_nodes(entry.value);
  return count;
}

class Interpolator {
 public:
  Interpolator(Node& root, const Environment& environment, Diagnostics& diagnostics)
      : root_(root), environment_(environment), diagnostics_(diagnostics) {}

  /// False if something below `node` could not be replaced, noted before.
  bool resolve(Node& node, const std::string& path) {
    const auto known = states_.find(&node);
    if (known != states_.end()) {
      if (known->second == State::kOpen) return note_cycle(node, path);
      return known->second == State::kDone;
    }
    if (node.kind == Node::Kind::kList || node.kind == Node::Kind::kMap) {
      return resolve_below(node, path);
    }
    if (node.text.find("${") == std::string::npos) return true;
    if (chain_.size() >= kMaxChain)
      return note(node, path, "references follow each other too long");
    states_[&node] = State::kOpen;
    chain_.push_back(path);
    const bool is_done = replace(node, path);
    chain_.pop_back();
    states_[&node] = is_done ? State::kDone : State::kFailed;
    node.is_broken = !is_done;
    return is_done;
  }

 private:
  enum class State { kOpen, kDone, kFailed };

  /// Remembers the answer, so that many references to a large section do not each walk through it.
  bool resolve_below(Node& node, const std::string& path) {
    bool is_good = true;
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      is_good &= resolve(node.items[i], path + "[" + std::to_string(i) + "]");
    }
    for (Entry& entry : node.entries) {
      is_good &= resolve(entry.value, join_path(path, entry.key));
    }
    states_[&node] = is_good ? State::kDone : State::kFailed;
    return is_good;
  }

  bool note(const Node& node, const std::string& path, const std::string& what) {
    diagnostics_.add(node.position, path, what);
    return false;
  }

  bool note_cycle(const Node& node, const std::string& path) {
    std::string circle;
    bool is_inside = false;
    for (const std::string& step : chain_) {
      is_inside |= step == path;
      if (is_inside) circle += step + " -> ";
    }
    return note(node, path, "reference cycle: " + circle + path);
  }

  bool replace(Node& node, const std::string& path) {
    const std::optional<std::vector<Piece>> pieces = cut(node.text);
    if (!pieces) return note(node, path, "'${' without '}'; write '$${' for the plain characters");
    if (pieces->size() == 1 && pieces->front().is_reference) {
      return replace_whole(node, path, pieces->front().text);
    }
    std::string text;
    bool has_reference = false;
    for (const Piece& piece : *pieces) {
      if (piece.is_reference) {
        Node value;
        value.position = node.position;
        if (!look_up(node, path, piece.text, value)) return false;
        if (value.kind != Node::Kind::kScalar) {
          return note(node, path,
                      "${" + piece.text + "} is " + describe(value) +
                          "; only a single value can stand inside text");
        }
        node.has_unset_variable |= value.has_unset_variable;
        has_reference = true;
        text += value.text;
      } else {
        text += piece.text;
      }
      if (text.size() > kMaxTextBytes) return note(node, path, "longer than 64 KiB");
    }
    node.text = std::move(text);
    node.is_quoted |= has_reference;
    return true;
  }

  bool replace_whole(Node& node, const std::string& path, const std::string& reference) {
    Node value;
    if (!look_up(node, path, reference, value)) return false;
    move_to(value, node.position);
    node = std::move(value);
    mark_done(node);
    return true;
  }

  /// What was copied is replaced already; a `${` left in it is meant literally.
  void mark_done(const Node& node) {
    states_[&node] = State::kDone;
    for (const Node& item : node.items) mark_done(item);
    for (const Entry& entry : node.entries) mark_done(entry.value);
  }

  /// Puts the value that `reference` names into `value`.
  bool look_up(const Node& from, const std::string& path, const std::string& reference,
               Node& value) {
    if (is_exhausted_) return false;
    if (++num_references_ > kMaxReferences) {
      is_exhausted_ = true;
      return note(from, path, "more than " + std::to_string(kMaxReferences) + " references");
    }
    if (reference.starts_with(kEnvPrefix)) {
      return look_up_variable(from, path, reference.substr(kEnvPrefix.size()), value);
    }
    if (!is_name(reference, "_.-")) {
      return note(from, path,
                  "'${" + reference +
                      "}' is not a reference; write ${section.key} or "
                      "${env:NAME}");
    }
    const Node* target = find_resolved(from, path, reference);
    if (!target) return false;
    num_copied_ += count_nodes(*target);
    if (num_copied_ > kMaxNodes) {
      is_exhausted_ = true;
      return note(from, path, "references copy more than " + std::to_string(kMaxNodes) + " values");
    }
    value = *target;
    return true;
  }

  bool look_up_variable(const Node& from, const std::string& path, const std::string& name,
                        Node& value) {
    if (!is_name(name, "_")) return note(from, path, "'" + name + "' is not a variable name");
    const std::optional<std::string> found = environment_ ? environment_(name) : std::nullopt;
    value.kind = Node::Kind::kScalar;
    if (!found || found->empty()) {
      value.text = "${env:" + name + "}";
      value.has_unset_variable = true;
      return true;
    }
    if (check_utf8(*found).valid < found->size()) {
      return note(from, path, "variable " + name + " is not UTF-8");
    }
    if (found->size() > kMaxTextBytes) return note(from, path, "longer than 64 KiB");
    value.text = *found;
    return true;
  }

  /// The value at `reference`, itself replaced; nullptr, noted, if there is none.
  const Node* find_resolved(const Node& from, const std::string& path,
                            const std::string& reference) {
    Node* node = &root_;
    std::string walked;
    std::string_view rest = reference;
    while (!rest.empty()) {
      const std::string_view key = rest.substr(0, rest.find('.'));
      rest.remove_prefix(std::min(rest.size(), key.size() + 1));
      Entry* entry = node->find(key);
      if (!entry) {
        note(from, path,
             "this recipe does not set '" + reference + "'" + suggest(*node, walked, key, rest));
        return nullptr;
      }
      node = &entry->value;
      walked = join_path(walked, key);
      // A reference on the way must first be replaced by its mapping.
      if (!rest.empty() && node->kind == Node::Kind::kScalar && !resolve(*node, walked)) {
        return nullptr;
      }
    }
    return resolve(*node, walked) ? node : nullptr;
  }

  static std::string suggest(const Node& section, const std::string& walked, std::string_view key,
                             std::string_view rest) {
    std::vector<std::string> keys;
    for (const Entry& entry : section.entries) keys.push_back(entry.key);
    const std::string best = nearest(key, keys);
    if (best.empty()) return "";
    return "; did you mean '" + join_path(join_path(walked, best), rest) + "'?";
  }

  Node& root_;
  const Environment& environment_;
  Diagnostics& diagnostics_;
  std::unordered_map<const Node*, State> states_;
  std::vector<std::string> chain_;
  std::size_t num_copied_ = 0;
  int num_references_ = 0;
  bool is_exhausted_ = false;  ///< a limit was passed and noted: no further replacing
};

}  // namespace

void interpolate(Node& root, const Environment& environment, Diagnostics& diagnostics) {
  Interpolator(root, environment, diagnostics).resolve(root, "");
}

}  // namespace shoal::config
