#pragma once

#include <string_view>

namespace shoal::config {

/// `width` of `model.mlp.width`.
inline std::string_view last_key(std::string_view path) { return path.substr(path.rfind('.') + 1); }

}  // namespace shoal::config
