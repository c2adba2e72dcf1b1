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

/// Arguments of `shoal data prepare cifar10 [ARCHIVE|FOLDER] [--out DIR]`.
struct PrepareArguments {
  std::string name;                          ///< data set
  std::string given;                         ///< archive, or folder of its files; may be ""
  std::string out = "cifar-10-batches-bin";  ///< folder to make of an archive
};

/// Checks a published data set, after unpacking its archive, and prints what data.path is to be;
/// without `given`, where the archive is. Throws Error: exit 2 for the name, 13 for the files, 21
/// if DIR exists.
ExitCode prepare(const PrepareArguments& arguments, std::ostream& out);
/// Writes the files of a tar.gz archive of at most 200 MiB, without their folders, into the folder
/// `out`. Throws DataError unless `md5` is the archive's checksum; StorageError.
void unpack_archive(const std::string& archive, const std::string& md5, const std::string& out);

/// Arguments of `shoal data split FOLDER --valid 10% [--out DIR] [--seed N]`.
struct SplitArguments {
  std::string folder;  ///< subfolders are classes
  double valid_percent = 0;
  std::string out;  ///< folder to make; "": FOLDER_split
  int64_t seed = 1;
};

/// Makes DIR with folders train and val of links to the files of each class, of which a share is
/// drawn for val. Throws Error: exit 13 for the files, 21 if DIR exists.
ExitCode split(const SplitArguments& arguments, std::ostream& out);

}  // namespace shoal
