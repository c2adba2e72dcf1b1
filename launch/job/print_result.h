#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "runtime/base/json_text.h"

namespace shoal {

/// Prints what a command found: `json` on a line of its own for --json, else `text` as it is.
inline void print_result(std::ostream& out, bool as_json, const nlohmann::ordered_json& json,
                         const std::string& text) {
  out << (as_json ? json_text(json) + "\n" : text);
}

}  // namespace shoal
