#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "models/backbone.h"

namespace shoal {

inline constexpr double kDecoderEps = 1e-5;  ///< epsilon of decoders' norms

/// Returns the maximum sequence length, model.context, by default the number of tokens in a sample.
/// Throws ConfigError if the data has no tokens, or longer samples. `who`: the backbone's name.
int64_t decoder_context(const std::optional<int64_t>& context, const DataShape& data,
                        std::string_view who);

/// Returns the settings (ranks, device, dtype) from which a decoder's constructor builds its
/// blocks: `build`, with is_causal as given and reads_tokens true. MoE layers read both: is_causal
/// refuses routers that look at later tokens, reads_tokens allows routers that read vocabulary ids.
ModelContext decoder_build(ModelContext build, bool is_causal = true);

}  // namespace shoal
