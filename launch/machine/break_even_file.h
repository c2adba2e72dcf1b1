#pragma once

#include <map>
#include <optional>
#include <string>

#include "parallel/comm/communicator.h"
#include "sparse/kernels/break_even.h"

namespace shoal {

/// Path of the file in the user's cache folder with a machine's densities above which dense
/// products are faster than sparse kernels, measured by `shoal doctor --calibrate`.
std::string break_even_path(const std::string& cache_folder);

/// Values measured on a processor of this model; nothing if the file is missing. Throws DataError
/// that names a file which cannot be read or has invalid densities.
std::optional<BreakEvens> read_break_evens(const std::string& path, const std::string& processor);

/// Writes the file. Throws DataError that names it.
void write_break_evens(const std::string& path, const std::string& processor,
                       const BreakEvens& break_evens);

/// Name of the processor, from the system.
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

/// Key of a checkpoint's `written_by` that stores them as text.
inline constexpr const char* kWrittenBreakEvens = "sparse_break_even";
std::string to_text(const BreakEvens& break_evens);

}  // namespace shoal
