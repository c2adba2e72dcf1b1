#pragma once

#include <string>
#include <vector>

#include "runtime/base/build_info.h"

namespace shoal {

/// An option of a command, or a word that it takes without one.
struct OptionDescription {
  std::vector<std::string> names;    ///< `-o`, `--output`; none of a word without an option
  std::string value;                 ///< what it takes, as help shows it: `FILE.html`; "" of a flag
  std::vector<std::string> choices;  ///< all values, where they are few and known
  std::string doc;
  bool is_required = false;
  bool repeats = false;
};

/// A command with its options and its own commands: what completion scripts and the manual are
/// made of. launch/command_line/describe_commands.h makes it of the command line's parser.
struct CommandDescription {
  std::string name, doc;
  std::string footer;  ///< examples, below the options
  std::vector<OptionDescription> options;
  std::vector<OptionDescription> words;  ///< in the order in which they are expected
  std::vector<CommandDescription> commands;
};

/// Shells that `completion_script` knows.
std::vector<std::string> completion_shells();
/// The script with which a shell completes commands, options, recipes, keys and files.
/// Throws: TORCH_CHECK for another shell.
std::string completion_script(const CommandDescription& program, const std::string& shell);

/// The manual page in roff, as `man -l FILE` shows it.
std::string manual_page(const CommandDescription& program, const BuildInfo& build);

/// A command's synopsis: `check RECIPE [KEY=VALUE ...] [OPTION ...]`.
std::string synopsis(const CommandDescription& command);

}  // namespace shoal
