#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "models/backbone.h"

namespace shoal {

inline constexpr double kDecoderEps = 1e-5;  ///< epsilon of decoders' norms

/// Returns model.context, by default the number of tokens in a sample. Throws ConfigError if the
/// data has no tokens, or samples longer than the context. `who`: the backbone's name.
int64_t decoder_context(const std::optional<int64_t>& context, const DataShape& data,
                        std::string_view who);

/// Returns `build` with is_causal as given and reads_tokens set: routers may use vocabulary ids.
ModelContext decoder_build(ModelContext build, bool is_causal = true);

}  // namespace shoal
