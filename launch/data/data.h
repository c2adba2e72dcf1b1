#pragma once

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/shards/shard_writer.h"

namespace shoal {

/// Arguments of `shoal data tokenize FILE… --tokenizer NAME [--KEY VALUE …] --out X.bin`.
struct TokenizeArguments {
  std::vector<std::string> files;  ///< text files
  std::string tokenizer;
  std::vector<std::pair<std::string, std::string>> options;  ///< of the tokenizer
  std::string out;
  bool json = false;
};

/// Tokenizes text files into one file of token ids, a token cache, replacing an older cache. Throws
/// Error: exit 2 for the arguments, 13 for the files, 21 if the cache cannot be written.
ExitCode tokenize(const TokenizeArguments& arguments, std::ostream& out);

/// Arguments of `shoal data pack FOLDER --out DIR [--shard-size BYTES] [--classes|--classes-of
/// DIR]`, with which subfolders are classes, numbered in order of name or as in other shards.
struct PackArguments {
  PackPlan plan;  ///< FOLDER: folder, DIR: out, BYTES: shard_bytes; has_classes, classes_of
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

/// Checks shards: tar headers, classes of samples, and index files with their samples and names.
/// Prints totals and the findings. Throws DataError (exit 13) with the first finding.
ExitCode verify_data(const VerifyArguments& arguments, std::ostream& out);

}  // namespace shoal
