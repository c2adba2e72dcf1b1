#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

/// Reasons why weights cannot be imported or exported, for one error that lists them all.
class Mistakes {
 public:
  void add(std::string what) { lines_.push_back(std::move(what)); }
  /// If there are mistakes, throws Error (exit 12): `head` and a line a mistake, at most
  /// kMostShown.
  void throw_if_any(const std::string& head, const std::string& hint = "") const;

  static constexpr size_t kMostShown = 50;

 private:
  std::vector<std::string> lines_;
};

/// A config.json, or an object in it, that another program wrote; not trusted. A missing or null
/// key gives nothing; one of the wrong type throws Error (exit 12) with file and key.
class ForeignConfig {
 public:
  /// Stands for a missing file: every key is missing.
  ForeignConfig() = default;
  /// Throws CheckpointError, beginning with `'path': `, if the text is not a JSON object, or nested
  /// deeper or longer than any model's.
  ForeignConfig(std::string_view json, std::string path);

  bool is_there() const { return json_ != nullptr; }
  /// A key for messages, "'path': key".
  std::string place(std::string_view key) const;
  std::vector<std::string> keys() const;

  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  std::optional<std::vector<double>> numbers(std::string_view key) const;
  /// The value as JSON, shortened if it is long; "" if there is none.
  std::string written(std::string_view key) const;
  /// The object at a key; one without keys if it is missing.
  ForeignConfig section(std::string_view key) const;

 private:
  std::shared_ptr<const nlohmann::json> json_;
  std::string path_, prefix_;

  const nlohmann::json* find(std::string_view key) const;
  [[noreturn]] void refuse(std::string_view key, std::string_view expected) const;
};

/// Adds a mistake if the object has the key with a value other than `json`.
void require_value(const ForeignConfig& object, const std::string& key, const std::string& json,
                   Mistakes& mistakes);

}  // namespace shoal
