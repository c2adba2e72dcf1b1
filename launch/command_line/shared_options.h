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

/// Shared by the files that declare subcommands (launch/command_line/subcommands.h).
namespace shoal {

/// Adds the checkpoint to read, by its folder or its run's.
void add_checkpoint_path(CLI::App& command, std::string& path);
/// Adds overrides of recipe keys: `key=value …`.
void add_overrides(CLI::App& command, std::vector<std::string>& overrides);
/// Lists an option's values in help and completion. Other values are passed on to the command,
/// which refuses them with a suggestion.
void offer_values(CLI::Option& option, const std::vector<std::string>& values);
/// Adds `--raw-weights`, for commands that use a checkpoint's weights.
void add_raw_weights(CLI::App& command, bool& raw_weights);
/// Adds `--override`, for commands that use a checkpoint's weights: uses them although the model
/// differs, and passes over a run's unreadable checkpoints.
void add_model_override(CLI::App& command, bool& override_model);
/// Parses an option's number as a recipe's and checks its range. `type`: of an int64_t or a double.
CLI::Validator strict_number(const config::Type& type, const Range& range);
CLI::Validator integer_in(const Range& range);

// Each declares one subcommand; running it sets `code`.
void add_inspect(CLI::App& app, ExitCode& code);
void add_keys(CLI::App& app, ExitCode& code);
void add_new(CLI::App& app, ExitCode& code);
void add_report(CLI::App& app, ExitCode& code);
/// Declares `completion` and `man`, which describe all commands of `app`.
void add_descriptions(CLI::App& app, ExitCode& code);

}  // namespace shoal
