#include "launch/predict/prompt.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iostream>

#include "launch/weights/load_weights.h"
#include "runtime/base/error.h"
#include "runtime/files/data_file.h"

namespace shoal {

std::shared_ptr<std::istream> open_input(const std::string& path) {
  const bool is_standard = path == "-" || path == "/dev/stdin";
  if (is_standard) return {std::shared_ptr<void>(), &std::cin};  // owned by nobody
  return std::make_shared<std::ifstream>(open_unless_pipe(path));
}

bool has_read_error(const std::istream& stream) {
  // std::cin reads by stdio and takes its errors for the end.
  if (&stream == &std::cin && std::ferror(stdin) != 0) return true;
  return stream.bad() || (stream.fail() && !stream.eof());
}

TextModel& text_model_of(const BuiltModel& model, const Recipe& recipe) {
  auto* text_model = dynamic_cast<TextModel*>(model.task.get());
  if (text_model != nullptr) return *text_model;
  throw ConfigError(
      fmt::format("task.name: a language model is needed, which task lm trains; this checkpoint's "
                  "task is {}",
                  recipe.task.name()));
}

std::shared_ptr<const Tokenizer> text_tokenizer(const OpenedCheckpoint& opened,
                                                const DataSource& source) {
  std::shared_ptr<const Tokenizer> tokenizer = source.tokenizer();
  if (tokenizer == nullptr) {
    const DataShape shape = source.shape();
    throw ConfigError("data.source: text is needed, " + shape.source + " gives " + shape.text());
  }
  require_own_tokenizer(opened.manifest, tokenizer->identity());
  return tokenizer;
}

std::vector<int64_t> encode_prompt(const std::string& name, const std::string& text,
                                   const Tokenizer& tokenizer, int64_t most) {
  std::vector<int64_t> tokens;
  try {
    tokenizer.encode(text, tokens);
  } catch (const BadText& error) {
    throw DataError(name + ": " + error.what(), error.hint());
  }
  if (tokens.empty() && tokenizer.end_of_text() >= 0) tokens.push_back(tokenizer.end_of_text());
  if (tokens.empty()) {
    throw Error(ExitCode::kUsage,
                name +
                    ": the prompt is empty, and its tokenizer has no token that ends a text, to "
                    "start from",
                "give it some text, by --prompt TEXT or --prompt-file FILE");
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
