#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "models/backbone.h"

namespace shoal {

inline constexpr double kDecoderEps = 1e-5;  ///< of decoders' norms

/// model.context, or the tokens of a sample. Throws ConfigError where the data has no tokens, or
/// more in a sample. `who`: the backbone's name.
int64_t decoder_context(const std::optional<int64_t>& context, const DataShape& data,
                        std::string_view who);

/// What a decoder builds its layers with.
ModelContext decoder_build(ModelContext build, bool is_causal = true);

}  // namespace shoal
