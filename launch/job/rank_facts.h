#pragma once

#include <string>

#include "launch/recipe/recipe.h"
#include "parallel/comm/on_rank_zero.h"

namespace shoal {

/// Versions of LibTorch and MPI as loaded, `2.11.0` and `Open MPI v4.1.4`; "unknown" for a LibTorch
/// that does not tell.
std::string loaded_torch_version();
std::string loaded_mpi_version();

/// The linker's hash of what a loaded file holds: 40 hexadecimal digits. `file` is the name of a
/// shared library without its folder, or empty for the program. Throws Error (exit 14) if no such
/// file is loaded or it was linked without --build-id.
std::string build_id_of_loaded(const std::string& file);

/// Program, libshoal.so, LibTorch and MPI, as loaded.
Facts installation_facts();

/// The recipe, as a hash, without what may differ between machines: paths of data.
Facts recipe_facts(const Recipe& recipe);

/// Call it before ranks exchange anything else. Collective. Throws Error (exit 14) on every rank if
/// their installations or recipes differ.
void require_equal_ranks(Communicator& world, const Recipe& recipe);

}  // namespace shoal
