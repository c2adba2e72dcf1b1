#include "models/decoder_shape.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace shoal {

int64_t decoder_context(const std::optional<int64_t>& context, const DataShape& data,
                        std::string_view who) {
  require_tokens(data, "model.backbone", who);
  const int64_t tokens = context.value_or(data.sequence);
  if (tokens >= data.sequence) return tokens;
  throw ConfigError(fmt::format(
      "model.context: {} is below the {} tokens of a sample; use {} or more, or shorter samples",
      tokens, data.sequence, data.sequence));
}

ModelContext decoder_build(ModelContext build, bool is_causal) {
  build.is_causal = is_causal;
  build.reads_tokens = true;
  return build;
}

}  // namespace shoal
