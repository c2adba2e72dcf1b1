#pragma once

#include "runtime/base/error.h"

namespace CLI {
class App;
}

namespace shoal {

/// Declares `completion` and `man`, which describe all commands of `app` and set `code`.
void add_descriptions(CLI::App& app, ExitCode& code);

}  // namespace shoal
