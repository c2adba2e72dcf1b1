#pragma once

#include <cstdint>
#include <istream>
#include <memory>
#include <string>
#include <vector>

#include "launch/weights/open_checkpoint.h"
#include "models/text_generation.h"
#include "runtime/data/data_source.h"
#include "runtime/text/tokenizer.h"

namespace shoal {

/// Opens a file for reading, for "-" and /dev/stdin standard input, which may be a socket. The
/// stream is in failed state if that fails or the path is a named pipe.
std::shared_ptr<std::istream> open_input(const std::string& path);

/// True if reading a stream of open_input failed, other than by reaching its end.
bool has_read_error(const std::istream& stream);

/// Returns the model of a checkpoint's language model. Throws ConfigError for another task's.
TextModel& text_model_of(const BuiltModel& model, const Recipe& recipe);

/// Returns the tokenizer of a checkpoint's text. Throws ConfigError if its data source has none,
/// DataError for its files, Error (exit 12) if the checkpoint was trained with another one.
std::shared_ptr<const Tokenizer> text_tokenizer(const OpenedCheckpoint& opened,
                                                const DataSource& source);

/// Returns the token ids of a prompt, called `name` in messages; for an empty text the end-of-text
/// id. Throws DataError for text that the tokenizer cannot encode, and Error (exit 2) if the prompt
/// has more than `most` tokens, or is empty and the tokenizer has no end-of-text id.
std::vector<int64_t> encode_prompt(const std::string& name, const std::string& text,
                                   const Tokenizer& tokenizer, int64_t most);

}  // namespace shoal
