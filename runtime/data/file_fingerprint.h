#pragma once

#include <string>

namespace shoal {

/// Identifies a data file, so that a resumed run notices if it changed. Returns "NAME SIZE HASH":
/// its name without folders, its bytes, and the first 16 digits of the SHA-256 of up to 64 evenly
/// spread blocks of 4 KiB, including the first and the last. Takes milliseconds for a large data
/// set; misses changes between the blocks. Throws DataError if the file cannot be read.
std::string file_fingerprint(const std::string& path);

}  // namespace shoal
