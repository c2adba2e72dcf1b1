#pragma once

#include <map>
#include <optional>
#include <string>

#include "parallel/comm/communicator.h"
#include "sparse/kernels/break_even.h"

namespace shoal {

/// Path of the file in the user's cache folder that holds break-even densities: a sparse kernel is
/// faster than the dense product below its break-even density (share of weights that a mask leaves
/// on). `shoal doctor --calibrate` measures and writes them; trainings choose kernels by them.
std::string break_even_path(const std::string& cache_folder);

/// Reads the densities; nullopt if there is no file, or if it was measured on another processor
/// model than `processor`. Throws DataError with the file's name if it is invalid.
std::optional<BreakEvens> read_break_evens(const std::string& path, const std::string& processor);

/// Writes densities measured on the model `processor`. Throws DataError with the file's name.
void write_break_evens(const std::string& path, const std::string& processor,
                       const BreakEvens& break_evens);

/// Name of the processor model, as the system reports it; "unknown" without one.
std::string processor_model();

/// Break-even densities, and their source in words for the log.
struct ChosenBreakEvens {
  BreakEvens values;
  std::string source;
};

/// Chooses the break-even densities of a training: those in the checkpoint of a resumed run, so
/// that it uses the same kernels and gives the same bits; else those measured on rank 0's machine;
/// else the built-in ones. `written_by`: facts in the checkpoint's manifest, if any.
/// `cache_folder`: may be empty. Collective. Throws DataError for invalid densities.
ChosenBreakEvens choose_break_evens(const std::map<std::string, std::string>& written_by,
                                    const std::string& cache_folder, Communicator& world);

/// Key in `written_by` under which a checkpoint stores the densities, as to_text() formats them.
inline constexpr const char* kWrittenBreakEvens = "sparse_break_even";
std::string to_text(const BreakEvens& break_evens);

}  // namespace shoal
