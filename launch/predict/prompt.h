#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/text/tokenizer.h"

namespace shoal {

/// The ids of a prompt, called `name` in messages; of an empty one the token that ends a text.
/// Throws DataError for what the tokenizer cannot read, and Error (exit 2) if the prompt is empty
/// without such a token or has more than `most` tokens.
std::vector<int64_t> encode_prompt(const std::string& name, const std::string& text,
                                   const Tokenizer& tokenizer, int64_t most);

}  // namespace shoal
