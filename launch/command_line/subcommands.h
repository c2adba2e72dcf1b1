#pragma once

#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace CLI {
class App;
}

namespace shoal {

/// Declares all subcommands of `shoal` with their options. Parsing runs the one that is named and
/// sets `code` to its exit code. `command_line`: the words as typed, recorded in a run's env.json.
void add_subcommands(CLI::App& app, ExitCode& code, const std::vector<std::string>& command_line);

}  // namespace shoal
