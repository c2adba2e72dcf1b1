#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "models/backbone.h"

namespace shoal {

inline constexpr double kDecoderEps = 1e-5;  ///< epsilon of decoders' norms

/// model.context or, by default, the tokens of a sample. Throws ConfigError if the data has no
/// tokens, or samples have more. `who`: the backbone's name.
int64_t decoder_context(const std::optional<int64_t>& context, const DataShape& data,
                        std::string_view who);

/// The context for building a decoder's layers.
BuildContext decoder_build(BuildContext build, bool is_causal = true);

}  // namespace shoal
