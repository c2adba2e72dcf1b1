#pragma once

#include <map>
#include <optional>
#include <string>

#include "parallel/comm/communicator.h"
#include "sparse/kernels/break_even.h"

namespace shoal {

/// Densities above which dense products are faster than sparse kernels, as measured on a machine
/// by `shoal doctor --calibrate`: a file in the user's cache folder.
std::string break_even_path(const std::string& cache_folder);

/// What was measured on a processor of this model; nothing without such a file. Throws DataError
/// that names a file which cannot be read or has numbers that are no densities.
std::optional<BreakEvens> read_break_evens(const std::string& path, const std::string& processor);

/// Throws DataError that names the file.
void write_break_evens(const std::string& path, const std::string& processor,
                       const BreakEvens& break_evens);

/// The processor's name as the system gives it.
std::string processor_model();

/// Break-even densities and their source, for the log.
struct ChosenBreakEvens {
  BreakEvens values;
  std::string source;
};

/// Those that a run began with, if its checkpoint has them (`written_by` of its manifest), so
/// that a resumed run has the same kernels and thus the same bits; else, where there is a cache
/// folder, those that rank 0 finds measured there; else the ones built in. Collective. Throws as
/// read_break_evens.
ChosenBreakEvens choose_break_evens(const std::map<std::string, std::string>& written_by,
                                    const std::string& cache_folder, Communicator& world);

/// The entry of a checkpoint's `written_by` that holds them, as text.
inline constexpr const char* kWrittenBreakEvens = "sparse_break_even";
std::string to_text(const BreakEvens& break_evens);

}  // namespace shoal
