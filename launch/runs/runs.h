#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace shoal {

/// Arguments of `shoal runs [FOLDER…] [--columns KEY,KEY…] [--sort KEY] [--filter WORD…]
/// [--json | --prune [--yes]]`. KEY: a column, or a key of recipes such as optimizer.lr.
struct RunsArguments {
  std::vector<std::string> folders = {};  ///< default: the default of run.root
  std::vector<std::string> words = {};    ///< part of the name, or KEY=VALUE; a run must have all
  std::string columns = "";               ///< keys behind the name; default: all columns
  std::string sort = "name";              ///< a key; a - in front reverses the order
  bool json = false;
  bool prunes = false;   ///< tell which runs are of no use
  bool removes = false;  ///< with `prunes`: remove them
};

/// Prints the runs below the folders that fit, at any depth, as docs/formats.md describes; opens no
/// checkpoint. What cannot be read has the state `?` and a note. Or prunes them: superseded
/// attempts, and failed and crashed runs without a checkpoint, so none that model.init_from may
/// name, and none that a live job works on or that holds other files. Returns the code of the last
/// removal that failed; the others go on. Throws Error (exit 2) with a suggestion for an unknown
/// key and a folder that does not exist.
ExitCode runs(const RunsArguments& arguments, std::ostream& out);

/// Paths of the runs in a folder at any depth, by name; of the folder itself if it is one. Throws
/// Error (exit 2) with a suggestion if it does not exist.
std::vector<std::string> list_runs(const std::string& folder);

}  // namespace shoal
