#pragma once

#include <string>

namespace shoal {

/// A nlohmann::json value as text, on one line or indented by `indent` blanks a level. Bytes that
/// are not UTF-8, as names of files and texts of libraries may hold, become U+FFFD.
template <typename Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace shoal
