#pragma once

#include <optional>
#include <string>

#include "runtime/yaml/config_node.h"

namespace shoal::config {

constexpr std::size_t kMaxRecipeBytes = std::size_t{1} << 20;
constexpr int kMaxNesting = 32;
constexpr std::size_t kMaxNodes = 100'000;

/// Advises to quote the value of an override KEY=VALUE that is meant as text: "; quote the value:
/// KEY='\"VALUE\"'", in YAML's quotes and a shell's around them.
std::string quote_hint(const std::string& key, const std::string& value);

/// Parses one YAML document. Every mistake goes to `diagnostics`: bytes that are not UTF-8, control
/// characters, a syntax error, duplicate keys (at the second, naming the first), anchors, aliases,
/// tags, `<<`, keys that are not plain text, text after the first document, and documents above a
/// limit: 1 MiB; 32 levels; 100,000 keys and values; 100,000 of the characters `[{,:?&*!`; 10,000
/// of `[{`. An empty document is a null node. `start` is the position of the text. `path` is KEY if
/// the text is the VALUE of an override KEY=VALUE, "" for a whole recipe. Returns nullopt if the
/// text could not be read to its end. Other mistakes, such as a duplicate key, leave a tree.
std::optional<Node> read_yaml(const std::string& text, const Position& start,
                              const std::string& path, Diagnostics& diagnostics);

}  // namespace shoal::config
