#include "runtime/yaml/yaml_reader.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "runtime/base/utf8.h"

namespace shoal::config {
namespace {

// yaml-cpp reads ahead from a bracket to its end, since all of it could be a key: some 160 bytes of
// memory for each of these characters.
constexpr std::string_view kIndicators = "[{,:?&*!";
constexpr std::ptrdiff_t kMaxIndicators = 100'000;
constexpr std::ptrdiff_t kMaxBrackets = 10'000;

/// Thrown out of the event handler to stop reading; the mistake is noted already.
struct Stop {};

/// Builds the tree from yaml-cpp's events. Its Node interface is not used: it takes duplicate keys,
/// follows aliases and forgets tags.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const std::string& text, const Position& start, const std::string& path,
              Diagnostics& diagnostics)
      : text_(text),
        start_(start),
        path_(path),
        hint_(path.empty() || text.find_first_of("[{") == 0 ? "" : quote_hint(path, text)),
        diagnostics_(diagnostics) {}

  bool has_document() const { return has_document_; }
  Node take_root() { return std::move(root_); }
  /// quote_hint for an override whose value begins no list or mapping, else "".
  const std::string& hint() const { return hint_; }

  Position at(const YAML::Mark& mark) const {
    Position position = start_;
    if (start_.source->is_command_line) {  // lines there count overrides
      position.column += mark.line == 0 ? mark.column : 0;
    } else {
      position.line += mark.line;
      position.column = (mark.line == 0 ? start_.column : 1) + mark.column;
    }
    return position;
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (has_document_) {
      fail(mark, "text after the first document; a recipe is one document");
    }
    has_document_ = true;
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    Node node = make_node(Node::Kind::kNull, mark);
    const std::string_view rest = rest_at(mark);
    for (const std::string_view word : {"~", "null", "Null", "NULL"}) {
      if (rest.starts_with(word)) node.text = word;
    }
    // An empty value has no place of its own: yaml-cpp gives the next token's.
    if (node.text.empty() && !frames_.empty() && frames_.back().has_key) {
      node.position = frames_.back().key_position;
    }
    add(std::move(node));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    note(mark, "alias '" + word_at(mark) + "': aliases and anchors are not supported; " +
                   "use ${path.to.key}" + hint_);
    Node node = make_node(Node::Kind::kNull, mark);
    node.is_broken = true;
    add(std::move(node));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Node node = make_node(Node::Kind::kScalar, mark);
    node.text = value;
    node.is_quoted = tag == "!";
    node.is_broken = !check_decorations(mark, tag, anchor);
    add(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(Node::Kind::kList, mark, check_decorations(mark, tag, anchor));
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(Node::Kind::kMap, mark, check_decorations(mark, tag, anchor));
  }
  void OnMapEnd() override { close(); }

 private:
  /// A list or mapping that is being read.
  struct Frame {
    Node node;
    bool has_key = false;  ///< in a mapping: the key is read, its value comes next
    bool is_key_valid = true;
    std::string key;
    Position key_position;
    std::unordered_map<std::string, int> line_of_key;
  };

  /// Dotted path of the value that is read next.
  std::string path() const {
    std::string path = path_;
    for (const Frame& frame : frames_) {
      if (frame.node.kind == Node::Kind::kList) {
        path += "[" + std::to_string(frame.node.items.size()) + "]";
      } else if (frame.has_key) {
        path = join_path(path, frame.key);
      }
    }
    return path;
  }

  void note(const YAML::Mark& mark, const std::string& what) {
    diagnostics_.add(at(mark), path(), what);
  }
  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) {
    note(mark, what);
    throw Stop();
  }

  std::string_view rest_at(const YAML::Mark& mark) const {
    const auto offset = static_cast<std::size_t>(mark.pos);
    return mark.pos < 0 || offset >= text_.size() ? std::string_view()
                                                  : std::string_view(text_).substr(offset);
  }
  std::string word_at(const YAML::Mark& mark) const {
    const std::string_view rest = rest_at(mark);
    return std::string(rest.substr(0, std::min<std::size_t>(rest.find_first_of(" \t\r\n,]}"), 40)));
  }

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      note(mark,
           "anchor '" + word_at(mark) + "': anchors are not supported; use ${path.to.key}" + hint_);
    }
  }

  /// False, and a note, if the value carries a tag. Plain scalars and collections have the tag "?"
  /// (or none), quoted scalars "!", as has a value behind a lone exclamation mark.
  bool check_decorations(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    refuse_anchor(mark, anchor);
    const std::string_view rest = rest_at(mark);
    if ((tag.empty() || tag == "?" || tag == "!") && !rest.starts_with('!')) return true;
    note(mark, "tag '" + (rest.starts_with('!') ? word_at(mark) : tag) +
                   "': tags are not supported" + hint_);
    return false;
  }

  Node make_node(Node::Kind kind, const YAML::Mark& mark) {
    if (++num_nodes_ > kMaxNodes) {
      fail(mark, "more than " + std::to_string(kMaxNodes) + " values");
    }
    Node node;
    node.kind = kind;
    node.position = at(mark);
    return node;
  }

  void open(Node::Kind kind, const YAML::Mark& mark, bool is_good) {
    if (frames_.size() >= kMaxNesting) {
      fail(mark, "nesting deeper than " + std::to_string(kMaxNesting) + " levels");
    }
    Frame frame;
    frame.node = make_node(kind, mark);
    frame.node.is_broken = !is_good;
    frames_.push_back(std::move(frame));
  }

  void close() {
    Node node = std::move(frames_.back().node);
    frames_.pop_back();
    add(std::move(node));
  }

  /// Puts a finished value where it belongs; one behind a bad key is left out.
  void add(Node node) {
    if (frames_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& frame = frames_.back();
    if (frame.node.kind == Node::Kind::kList) {
      frame.node.items.push_back(std::move(node));
    } else if (!frame.has_key) {
      take_key(frame, node);
    } else {
      frame.has_key = false;
      if (!frame.is_key_valid) return;
      frame.node.entries.push_back(
          {std::move(frame.key), std::move(frame.key_position), std::move(node)});
    }
  }

  void take_key(Frame& frame, Node& node) {
    frame.is_key_valid = !node.is_broken && check_key(frame, node);
    frame.has_key = true;
    frame.key = std::move(node.text);
    frame.key_position = node.position;
  }

  bool check_key(Frame& frame, const Node& node) {
    if (node.kind != Node::Kind::kScalar) {
      diagnostics_.add(node.position, path(), "a key must be plain text, found " + describe(node));
      return false;
    }
    if (node.text == "<<" && !node.is_quoted) {
      diagnostics_.add(node.position, path(), "merge key '<<' is not supported; use include");
      return false;
    }
    const auto [first, is_new] = frame.line_of_key.try_emplace(node.text, node.position.line);
    if (!is_new) {
      diagnostics_.add(node.position, join_path(path(), node.text),
                       "duplicate key, first given in line " + std::to_string(first->second));
    }
    return is_new;
  }

  const std::string& text_;
  const Position& start_;
  const std::string& path_;
  const std::string hint_;
  Diagnostics& diagnostics_;
  std::vector<Frame> frames_;
  Node root_;
  bool has_document_ = false;
  std::size_t num_nodes_ = 0;
};

Position position_of_byte(const std::string& text, std::size_t offset, Position start) {
  for (std::size_t i = 0; i < offset; ++i) {
    if (text[i] == '\n' && !start.source->is_command_line) {
      ++start.line;
      start.column = 1;
    } else {
      ++start.column;
    }
  }
  return start;
}

/// The first tab among the blanks that this line or the one before begins with, if there is one.
std::optional<std::size_t> find_tab_indentation(const std::string& text, int last_line) {
  bool is_indentation = true;
  int line = 0;
  for (std::size_t i = 0; i < text.size() && line <= last_line; ++i) {
    if (text[i] == '\t' && is_indentation && line + 1 >= last_line) return i;
    is_indentation = text[i] == '\n' || (is_indentation && text[i] == ' ');
    line += text[i] == '\n' ? 1 : 0;
  }
  return std::nullopt;
}

std::string syntax_hint(const std::string& text, const std::string& message) {
  const bool is_flow = message.find("flow") != std::string::npos;
  const bool has_reference = text.find("${") != std::string::npos;
  return is_flow && has_reference ? "; inside {...} or [...] a reference needs quotes" : "";
}

/// What a text has too many of to be parsed in little memory; "" if it has not.
std::string find_excess(const std::string& text) {
  const auto count = [&text](std::string_view wanted) {
    return std::ranges::count_if(text, [wanted](char c) { return wanted.find(c) != wanted.npos; });
  };
  if (count("[{") > kMaxBrackets) {
    return "more than " + std::to_string(kMaxBrackets) + " '[' or '{': nesting like this";
  }
  if (count(kIndicators) > kMaxIndicators) {
    return "more than " + std::to_string(kMaxIndicators) + " of the characters " +
           std::string(kIndicators) + ": this";
  }
  return "";
}

bool check_bytes(const std::string& text, const Position& start, Diagnostics& diagnostics) {
  if (text.size() > kMaxRecipeBytes) {
    diagnostics.add(start, "", "larger than 1 MiB; this is not a recipe");
    return false;
  }
  if (const std::size_t valid = check_utf8(text).valid; valid < text.size()) {
    diagnostics.add(position_of_byte(text, valid, start), "", "this byte is not UTF-8");
    return false;
  }
  // yaml-cpp takes byte 4 for the end of the text, so control characters cannot pass.
  const auto control = std::ranges::find_if(text, [](unsigned char c) {
    return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f;
  });
  if (control != text.end()) {
    const auto offset = static_cast<std::size_t>(control - text.begin());
    diagnostics.add(position_of_byte(text, offset, start), "", "control character; text only");
    return false;
  }
  const std::string excess = find_excess(text);
  if (!excess.empty()) diagnostics.add(start, "", excess + " is not a recipe");
  return excess.empty();
}

}  // namespace

std::string quote_hint(const std::string& key, const std::string& value) {
  const bool needs_single = value.find_first_of("\"\\") != std::string::npos;
  return "; quote the value: " + key + "=" +
         (needs_single ? "\"'" + value + "'\"" : "'\"" + value + "\"'");
}

std::optional<Node> read_yaml(const std::string& original, const Position& start,
                              const std::string& path, Diagnostics& diagnostics) {
  if (!check_bytes(original, start, diagnostics)) return std::nullopt;
  const bool has_byte_order_mark = original.starts_with("\xef\xbb\xbf");
  const std::string text = has_byte_order_mark ? original.substr(3) : original;
  TreeBuilder builder(text, start, path, diagnostics);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Stop&) {
    return std::nullopt;
  } catch (const YAML::Exception& error) {
    const int line = error.mark.is_null() ? 0 : error.mark.line;
    if (const auto tab = find_tab_indentation(text, line)) {
      diagnostics.add(position_of_byte(text, *tab, start), path,
                      "not YAML: a tab in the indentation; indent with spaces");
      return std::nullopt;
    }
    const Position position = error.mark.is_null() ? start : builder.at(error.mark);
    const std::string hint = syntax_hint(text, error.msg);
    diagnostics.add(position, path,
                    "not YAML: " + error.msg + (hint.empty() ? builder.hint() : hint));
    return std::nullopt;
  }
  Node root = builder.take_root();
  if (!builder.has_document()) root.position = start;
  return root;
}

}  // namespace shoal::config
