#pragma once

#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/options/config_schema.h"

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

/// Parts of launch/command_line/subcommands.h.
namespace shoal {

/// The checkpoint that a command reads, by its folder or its run's.
void add_checkpoint_path(CLI::App& command, std::string& path);
/// Changes of a recipe's keys: `key=value …`.
CLI::Option* add_overrides(CLI::App& command, std::vector<std::string>& overrides);
/// Lists the values of an option in help and completion. Other values reach the command, which
/// refuses them with a suggestion.
void offer_values(CLI::Option& option, const std::vector<std::string>& values);
/// `--raw-weights`, of commands that use the weights of a checkpoint.
void add_raw_weights(CLI::App& command, bool& raw_weights);
/// `--override`, of commands that use the weights of a checkpoint: they are used although the model
/// differs from theirs, and a run's checkpoint that cannot be read is passed over.
void add_model_override(CLI::App& command, bool& override_model);
/// Of an option's number, to transform it: read as a recipe's is, and within the range. `type`: of
/// an int64_t or a double.
CLI::Validator strict_number(const config::Type& type, const Range& range);
CLI::Validator integer_in(const Range& range);
// Each declares a subcommand, which sets `code`.

void add_inspect(CLI::App& app, ExitCode& code);
void add_keys(CLI::App& app, ExitCode& code);
void add_new(CLI::App& app, ExitCode& code);
/// Declares `report`, which sets `code`.
void add_report(CLI::App& app, ExitCode& code);

}  // namespace shoal
