#pragma once

#include <string>

#include "launch/recipe/recipe.h"
#include "parallel/comm/on_rank_zero.h"

namespace shoal {

/// Versions of the loaded LibTorch, `2.11.0` ("unknown" without one), and MPI, `Open MPI v4.1.4`.
std::string loaded_torch_version();
std::string loaded_mpi_version();

/// Build id of a loaded file, the linker's hash: 40 hexadecimal digits. `file` is the name of a
/// shared library without its folder, or empty for the program. Throws Error (exit 14) if no such
/// file is loaded or it was linked without --build-id.
std::string build_id_of_loaded(const std::string& file);

/// Build ids and versions of the program, libshoal.so, LibTorch and MPI, as loaded.
Facts installation_facts();

/// Hash of the recipe without the paths of its data, which may differ between machines.
Facts recipe_facts(const Recipe& recipe);

/// Checks that all ranks run the same build with the same recipe. Call before any other exchange
/// between ranks. Collective. Throws Error (exit 14) on every rank, with the differences.
void require_equal_ranks(Communicator& world, const Recipe& recipe);

}  // namespace shoal
