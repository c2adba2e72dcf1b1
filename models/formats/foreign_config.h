#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

/// Collects reasons why weights cannot be imported or exported, and reports them in one error.
class Mistakes {
 public:
  void add(std::string what) { lines_.push_back(std::move(what)); }
  /// Throws Error (exit 12) if there are any: `head`, then a line for each, at most kMostShown.
  void throw_if_any(const std::string& head, const std::string& hint = "") const;

  static constexpr size_t kMostShown = 50;

 private:
  std::vector<std::string> lines_;
};

/// Typed access to a config.json, or an object in it, written by another program and not trusted. A
/// missing or null key reads as nullopt; a wrong type throws Error (exit 12) with file and key,
/// but texts() returns an empty list in both cases.
class ForeignConfig {
 public:
  /// Without a file, every key is missing.
  ForeignConfig() = default;
  /// Throws CheckpointError, beginning with `'path': `, unless the text is a small JSON object.
  ForeignConfig(std::string_view json, std::string path);

  bool is_there() const { return json_ != nullptr; }
  /// Returns "'path': key", for error messages.
  std::string place(std::string_view key) const;
  std::vector<std::string> keys() const;

  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  std::optional<std::vector<double>> numbers(std::string_view key) const;
  /// The texts of a list, or of an object by its keys "0", "1"…; empty for any other value.
  std::vector<std::string> texts(std::string_view key) const;
  /// The value as JSON text, truncated if long; "" if the key is missing.
  std::string written(std::string_view key) const;
  /// The object at a key; empty if the key is missing.
  ForeignConfig section(std::string_view key) const;

 private:
  std::shared_ptr<const nlohmann::json> json_;
  std::string path_, prefix_;

  const nlohmann::json* find(std::string_view key) const;
  [[noreturn]] void refuse(std::string_view key, std::string_view expected) const;
};

/// Adds a mistake if the object has the key with a value other than `json`, a JSON text.
void require_value(const ForeignConfig& object, const std::string& key, const std::string& json,
                   Mistakes& mistakes);

}  // namespace shoal
