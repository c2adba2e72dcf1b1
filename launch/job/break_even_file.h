#pragma once

#include <optional>
#include <string>

#include "parallel/comm/communicator.h"
#include "sparse/kernels/break_even.h"

namespace shoal {

/// Densities above which dense products are faster than sparse kernels, as measured on a machine
/// by `shoal doctor --calibrate`: a file in the user's cache folder.
std::string break_even_path(const std::string& cache_folder);

/// What rank 0 reads, on every rank. Collective.
std::optional<BreakEvens> agree_on_break_evens(const std::string& path, Communicator& world);
/// What was measured on a processor of this model; nothing without such a file. Throws DataError
/// that names a file which cannot be read.
std::optional<BreakEvens> read_break_evens(const std::string& path, const std::string& processor);

/// Throws DataError that names the file.
void write_break_evens(const std::string& path, const std::string& processor,
                       const BreakEvens& break_evens);

/// The processor's name as the system gives it.
std::string processor_model();

}  // namespace shoal
