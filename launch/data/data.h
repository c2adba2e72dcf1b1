#pragma once

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/shards/shard_writer.h"

namespace shoal {

/// Arguments of `shoal data tokenize FILE… --tokenizer NAME [--KEY VALUE …] --out X.bin`. KEY: a
/// key of the tokenizer or of TextFormat.
struct TokenizeArguments {
  std::vector<std::string> files;  ///< text files
  std::string tokenizer;
  std::vector<std::pair<std::string, std::string>> options;  ///< KEY, VALUE
  std::string out;
  bool json = false;
};

/// Tokenizes text files into one file of token ids, a token cache, replacing an older cache. Throws
/// Error: exit 2 for the arguments, 13 for the files, 21 if the cache cannot be written.
ExitCode tokenize(const TokenizeArguments& arguments, std::ostream& out);

/// Arguments of `shoal data pack FOLDER --out DIR [--shard-size BYTES] [--classes]`. With --classes
/// subfolders are classes, numbered in order of name, and each image is stored with its class.
struct PackArguments {
  PackPlan plan;  ///< FOLDER: folder, DIR: out, BYTES: shard_bytes, --classes: has_classes
  bool json = false;
};

/// Packs a folder of images into tar files (shards). An error leaves no shards behind. Throws
/// Error: exit 2 if DIR is not empty, 13 for the images, 21 if a shard cannot be written.
ExitCode pack(const PackArguments& arguments, std::ostream& out);

/// Arguments of `shoal data verify DIR|FILE.tar… [--decode]`.
struct VerifyArguments {
  std::vector<std::string> paths;  ///< shards, or folders of shards
  bool decodes = false;            ///< also decodes every image
  bool json = false;
};

/// Checks shards: tar headers, classes of samples, and index files (lists of a shard's samples).
/// Prints totals and the findings. Throws DataError (exit 13) with the first finding.
ExitCode verify_data(const VerifyArguments& arguments, std::ostream& out);

}  // namespace shoal
