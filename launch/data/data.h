#pragma once

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/shards/shard_writer.h"

namespace shoal {

/// `shoal data tokenize FILE… --tokenizer NAME [--KEY VALUE …] --out X.bin`.
struct TokenizeArguments {
  std::vector<std::string> files;
  std::string tokenizer;
  std::vector<std::pair<std::string, std::string>> options;  ///< options of the tokenizer
  std::string out;
  bool json = false;
};

/// Tokenizes text files into a token cache, replacing an older cache of that name. Throws Error:
/// exit 2 for the arguments, 13 for the files, 21 if the cache cannot be written.
ExitCode tokenize(const TokenizeArguments& arguments, std::ostream& out);

/// `shoal data pack FOLDER --out DIR [--shard-size BYTES] [--classes]`.
struct PackArguments {
  PackPlan plan;
  bool json = false;
};

/// Packs a folder of images into tar shards (shard_writer.h). An error leaves no shards behind.
/// Throws Error: exit 2 if DIR is not empty, 13 for the images, 21 if a shard cannot be written.
ExitCode pack(const PackArguments& arguments, std::ostream& out);

/// `shoal data verify DIR|FILE.tar… [--decode]`.
struct VerifyArguments {
  std::vector<std::string> paths;  ///< shards, or folders of shards
  bool decodes = false;
  bool json = false;
};

/// Checks shards (verify_shards.h), and prints their contents and every finding. Throws DataError
/// (exit 13) with the first finding.
ExitCode verify_data(const VerifyArguments& arguments, std::ostream& out);

}  // namespace shoal
