#include "launch/predict/prompt.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace shoal {

std::vector<int64_t> encode_prompt(const std::string& name, const std::string& text,
                                   const Tokenizer& tokenizer, int64_t most) {
  std::vector<int64_t> tokens;
  try {
    tokenizer.encode(text, tokens);
  } catch (const BadText& error) {
    throw DataError(name + ": " + error.what());
  }
  if (tokens.empty() && tokenizer.end_of_text() >= 0) tokens.push_back(tokenizer.end_of_text());
  if (tokens.empty()) {
    throw Error(ExitCode::kUsage,
                name +
                    ": the prompt is empty, and its tokenizer has no token that ends a text, to "
                    "start from",
                "give it some text");
  }
  if (std::ssize(tokens) > most) {
    throw Error(ExitCode::kUsage,
                fmt::format("{}: the prompt has {} tokens, the model's context has room for {}",
                            name, tokens.size(), most),
                "shorten it");
  }
  return tokens;
}

}  // namespace shoal
