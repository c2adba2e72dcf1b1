#include "models/formats/foreign_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/error.h"

namespace shoal {
namespace {

constexpr size_t kLongestValue = 60;
/// Maximum nesting: JSON values are written, and freed, by recursion.
constexpr int kDeepest = 32;
/// Maximum number of parsed elements; a weight_map has two per tensor.
constexpr size_t kMostEvents = size_t{1} << 19;

}  // namespace

void Mistakes::throw_if_any(const std::string& head, const std::string& hint) const {
  if (lines_.empty()) return;
  std::string text = head;
  for (size_t i = 0; i < std::min(lines_.size(), kMostShown); ++i) text += "\n  " + lines_[i];
  if (lines_.size() > kMostShown) {
    text += fmt::format("\n  and {} more", lines_.size() - kMostShown);
  }
  throw Error(ExitCode::kMismatch, text, hint);
}

ForeignConfig::ForeignConfig(std::string_view json, std::string path) : path_(std::move(path)) {
  size_t num_events = 0;
  const auto bound = [&](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
    if (depth > kDeepest) {
      throw CheckpointError(
          fmt::format("'{}': has more than {} levels of brackets", path_, kDeepest));
    }
    if (++num_events > kMostEvents) {
      throw CheckpointError(fmt::format("'{}': has more than {} values", path_, kMostEvents / 2));
    }
    return true;
  };
  nlohmann::json parsed = nlohmann::json::parse(json, bound, /*allow_exceptions=*/false);
  if (!parsed.is_object()) {
    throw CheckpointError(fmt::format("'{}': is not a JSON object", path_));
  }
  json_ = std::make_shared<const nlohmann::json>(std::move(parsed));
}

std::string ForeignConfig::place(std::string_view key) const {
  return fmt::format("'{}': {}{}", path_, prefix_, key);
}

const nlohmann::json* ForeignConfig::find(std::string_view key) const {
  if (json_ == nullptr) return nullptr;
  const auto found = json_->find(key);
  return found == json_->end() || found->is_null() ? nullptr : &*found;
}

void ForeignConfig::refuse(std::string_view key, std::string_view expected) const {
  throw Error(ExitCode::kMismatch,
              fmt::format("{} is {}, expected {}", place(key), written(key), expected));
}

std::vector<std::string> ForeignConfig::keys() const {
  std::vector<std::string> names;
  if (json_ == nullptr) return names;
  for (const auto& [key, value] : json_->items()) {
    if (!value.is_null()) names.push_back(key);
  }
  return names;
}

std::optional<int64_t> ForeignConfig::integer(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) refuse(key, "an integer");
  if (value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT64_MAX}) {
    refuse(key, "an integer of 64 bits");
  }
  return value->get<int64_t>();
}

std::optional<double> ForeignConfig::number(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse(key, "a number");
  return value->get<double>();
}

std::optional<bool> ForeignConfig::boolean(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse(key, "true or false");
  return value->get<bool>();
}

std::optional<std::string> ForeignConfig::text(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(key, "a string");
  return value->get<std::string>();
}

std::optional<std::vector<double>> ForeignConfig::numbers(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) refuse(key, "a list of numbers");
  std::vector<double> numbers;
  for (const nlohmann::json& item : *value) {
    if (!item.is_number()) refuse(key, "a list of numbers");
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

std::vector<std::string> ForeignConfig::texts(std::string_view key) const {
  std::vector<std::string> texts;
  const nlohmann::json* value = find(key);
  for (size_t i = 0; value != nullptr && i < value->size(); ++i) {
    const nlohmann::json::json_pointer place("/" + std::to_string(i));
    const bool is_text =
        value->is_structured() && value->contains(place) && value->at(place).is_string();
    if (!is_text) return {};
    texts.push_back(value->at(place));
  }
  return texts;
}

std::string ForeignConfig::written(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return "";
  std::string text = value->dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kLongestValue) text = text.substr(0, kLongestValue) + "...";
  return text;
}

ForeignConfig ForeignConfig::section(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_object()) refuse(key, "an object");
  ForeignConfig part;
  part.json_ = std::shared_ptr<const nlohmann::json>(json_, value);
  part.path_ = path_;
  part.prefix_ = prefix_ + std::string(key) + ".";
  return part;
}

void require_value(const ForeignConfig& object, const std::string& key, const std::string& json,
                   Mistakes& mistakes) {
  const std::string found = object.written(key);
  if (found.empty() || found == json) return;
  mistakes.add(fmt::format("{} is {}, supported is {}", object.place(key), found, json));
}

}  // namespace shoal
