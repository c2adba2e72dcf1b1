#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/options/config_schema.h"

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

/// The subcommands of `shoal` and the options that several of them have in common, for the parser
/// CLI11. Parsing writes the value of an option into the variable that is passed here.
namespace shoal {

/// Declares all subcommands of `shoal` with their options. Parsing runs the one that is named and
/// sets `code` to its exit code. `command_line`: the words as typed, recorded in a run's env.json.
void add_subcommands(CLI::App& app, ExitCode& code, const std::vector<std::string>& command_line);

struct CheckpointChoice;

/// Adds an option, or without dashes a word, whose value help shows as `type`.
CLI::Option* add_value(CLI::App& command, const char* name, std::string& value, const char* type,
                       const std::string& doc);
CLI::Option* add_value(CLI::App& command, const char* name, std::vector<std::string>& values,
                       const char* type, const std::string& doc);
/// Returns a check of an option's value: it is not empty and ends in `ending`, else it "must name"
/// `what`.
std::function<std::string(const std::string&)> must_name(const std::string& what,
                                                         const std::string& ending = "");
/// Returns the part of a command's help with examples of its use: `lines`, each indented.
inline std::string examples(const std::string& lines) { return "Examples:\n" + lines; }
/// Adds the word PATH: the folder of a checkpoint, or of a run, whose newest checkpoint is used.
void add_checkpoint_path(CLI::App& command, std::string& path);
/// Adds the words and options that choose the checkpoint whose weights a command uses.
void add_weights(CLI::App& command, CheckpointChoice& choice);
/// Adds the words `key=value …`, which set keys of the recipe, and `~key`, which removes one.
void add_overrides(CLI::App& command, std::vector<std::string>& overrides);
/// Shows an option's values in help and completion without checking them: the command itself
/// refuses other values, with a suggestion.
void offer_values(CLI::Option& option, const std::vector<std::string>& values);
/// Adds `--raw-weights`: use trained weights even if their averages (train.average) are saved, too.
void add_raw_weights(CLI::App& command, bool& raw_weights);
/// Adds the flag `--json`: print one JSON object on stdout.
void add_json(CLI::App& command, bool& json);
/// Adds the flag `--override`: use a checkpoint's weights even if the model of the recipe is not
/// the one that they were trained in, and skip checkpoints of a run that cannot be read.
void add_model_override(CLI::App& command, bool& override_model);
/// Returns a check of an option's value: a number, written as in a recipe, within `range`. `type`:
/// type of the variable, config::type_of<int64_t>() or config::type_of<double>().
CLI::Validator strict_number(const config::Type& type, const Range& range);
/// Adds an option whose value is such a number, int64_t or double; help shows its default.
template <class Number>
CLI::Option* add_number(CLI::App& command, const char* name, Number& number, const Range& range,
                        const char* doc);

// Each declares the subcommand of its name; parsing then runs it and sets `code` to its exit code.
void add_generate(CLI::App& app, ExitCode& code);
void add_inspect(CLI::App& app, ExitCode& code);
void add_keys(CLI::App& app, ExitCode& code);
void add_new(CLI::App& app, ExitCode& code);
void add_predict(CLI::App& app, ExitCode& code);
void add_report(CLI::App& app, ExitCode& code);
void add_runs(CLI::App& app, ExitCode& code);
void add_score(CLI::App& app, ExitCode& code);
/// Declare `prepare` and `split` below `data`, as above.
void add_prepare(CLI::App& data, ExitCode& code);
void add_split(CLI::App& data, ExitCode& code);
/// Declares `completion` and `man`, which print a completion script and a manual page of `app`.
void add_descriptions(CLI::App& app, ExitCode& code);

}  // namespace shoal
