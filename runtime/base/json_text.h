#pragma once

#include <optional>
#include <string>

namespace shoal {

/// Serialises a nlohmann::json value, on one line (-1) or indented by `indent` blanks a level.
/// Bytes that are not UTF-8 (in file names, messages of libraries) become U+FFFD; never throws.
template <typename Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

/// The value as JSON; null if there is none.
template <typename Json, typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace shoal
