#pragma once

#include <string>
#include <vector>

#include "runtime/base/build_info.h"

namespace shoal {

/// One option or positional word of a command, as help and the manual show it.
struct OptionDescription {
  std::vector<std::string> names;  ///< `-o`, `--output`; empty for a positional word
  std::string value;               ///< placeholder of its value in help, `FILE.html`; "" for a flag
  std::vector<std::string> choices;  ///< all values, if there are only a few
  std::string doc;                   ///< help text
  bool is_required = false;
  bool repeats = false;  ///< may be given several times
};

/// A command with its options and subcommands, for completion scripts and the manual.
/// launch/command_line/describe_commands.cpp makes it from the parser.
struct CommandDescription {
  std::string name, doc;
  std::string footer;  ///< examples, below the options
  std::vector<OptionDescription> options;
  std::vector<OptionDescription> words;  ///< positional words, in the expected order
  std::vector<CommandDescription> commands;
};

/// Shells that completion_script supports.
std::vector<std::string> completion_shells();
/// Returns a script with which a shell completes commands, options, recipes, keys and files. Throws
/// TORCH_CHECK for other shells.
std::string completion_script(const CommandDescription& program, const std::string& shell);

/// The manual page in roff, for `man -l FILE`.
std::string manual_page(const CommandDescription& program, const BuildInfo& build);

/// A command's synopsis: `check RECIPE [KEY=VALUE ...] [OPTION ...]`.
std::string synopsis(const CommandDescription& command);

}  // namespace shoal
