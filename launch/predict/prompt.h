#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/text/tokenizer.h"

namespace shoal {

/// Returns the token ids of a prompt, called `name` in messages; for an empty text the end-of-text
/// id. Throws DataError for text that the tokenizer cannot encode, and Error (exit 2) if the prompt
/// has more than `most` tokens, or is empty and the tokenizer has no end-of-text id.
std::vector<int64_t> encode_prompt(const std::string& name, const std::string& text,
                                   const Tokenizer& tokenizer, int64_t most);

}  // namespace shoal
