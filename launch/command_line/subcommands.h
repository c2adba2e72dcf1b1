#pragma once

#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace CLI {
class App;
}

namespace shoal {

/// Declares the options of each subcommand. Parsing runs the named one, which sets `code`.
/// `command_line`: as typed, for env.json.
void add_subcommands(CLI::App& app, ExitCode& code, const std::vector<std::string>& command_line);

}  // namespace shoal
