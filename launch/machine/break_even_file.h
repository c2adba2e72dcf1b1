#pragma once

#include <map>
#include <optional>
#include <string>

#include "parallel/comm/communicator.h"
#include "sparse/kernels/break_even.h"

namespace shoal {

/// Path of the file in the user's cache folder where `shoal doctor --calibrate` stores break-even
/// densities, above which dense products are faster than sparse kernels.
std::string break_even_path(const std::string& cache_folder);

/// Reads the densities measured on this processor model; nullopt if there is no file. Throws
/// DataError with the file's name if it cannot be read or has invalid densities.
std::optional<BreakEvens> read_break_evens(const std::string& path, const std::string& processor);

/// Writes measured densities. Throws DataError with the file's name.
void write_break_evens(const std::string& path, const std::string& processor,
                       const BreakEvens& break_evens);

/// Name of the processor model, as the system reports it.
std::string processor_model();

/// Break-even densities with their source, for the log.
struct ChosenBreakEvens {
  BreakEvens values;
  std::string source;
};

/// Chooses break-even densities: those in the checkpoint of a resumed run (`written_by` of its
/// manifest), so that it uses the same kernels and gives the same bits; else those measured on rank
/// 0's machine, if there is a cache folder; else the built-in ones. Collective. Throws as
/// read_break_evens.
ChosenBreakEvens choose_break_evens(const std::map<std::string, std::string>& written_by,
                                    const std::string& cache_folder, Communicator& world);

/// Key in a checkpoint's `written_by` that stores the densities as text.
inline constexpr const char* kWrittenBreakEvens = "sparse_break_even";
std::string to_text(const BreakEvens& break_evens);

}  // namespace shoal
