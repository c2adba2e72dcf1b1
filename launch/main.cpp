#include <fcntl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "launch/command_line/subcommands.h"
#include "launch/job/failure.h"
#include "launch/job/launch_info.h"
#include "launch/recipe/keys.h"
#include "runtime/base/build_info.h"
#include "runtime/base/signals.h"
#include "runtime/base/text.h"
#include "runtime/device/process_parts.h"

namespace shoal {
namespace {

/// Looks at the words that should be commands; CLI11 reports an unknown one only as a missing one.
void refuse_unknown_command(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (const std::string& word : words) {
    std::vector<std::string> names;
    for (const CLI::App* known : command->get_subcommands({})) names.push_back(known->get_name());
    if (names.empty() || word.starts_with('-')) return;
    if (std::ranges::find(names, word) == names.end()) {
      const bool is_recipe = word.ends_with(".yaml") || word.ends_with(".yml");
      const std::string guess =
          is_recipe ? "; did you mean 'shoal train " + word + "'?" : did_you_mean(word, names);
      throw Error(ExitCode::kUsage, "unknown command '" + word + "'" + guess,
                  guess.empty() ? "commands: " + join_words(names) : "");
    }
    command = command->get_subcommand(word);
  }
}

using Words = std::vector<std::string>;

/// Replaces the words `help [COMMAND ...]` and `version` by the options that they stand for.
Words as_options(Words words) {
  if (words.front() == "version") words.front() = "--version";
  if (words.front() != "help") return words;
  words.erase(words.begin());
  words.emplace_back("--help");
  return words;
}

/// True if a word sets a key of a recipe: train.batch=64.
bool is_override(const std::string& word) {
  const std::size_t equals = word.find('=');
  return equals != std::string::npos && equals > 0 && word[0] != '-' &&
         word.substr(0, equals).find('.') != std::string::npos;
}

/// An unknown option `--name=value` or `--name value`; "" for what is not given.
struct TypedOption {
  std::string name, value;
};

TypedOption typed_option(const std::string& word, const Words& words) {
  const std::string text = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  const std::size_t equals = text.find('=');
  if (equals != std::string::npos) return {text.substr(0, equals), text.substr(equals + 1)};
  const auto at = std::ranges::find(words, word);
  const std::string next = at == words.end() || at + 1 == words.end() ? "" : *(at + 1);
  return {text, next.starts_with('-') ? "" : next};
}

/// The override that an option stands for: `train.batch=3` for `--train.batch=3` and for `--set
/// train.batch=3`, `optimizer.lr=3` for `--lr 3`; "" if there is none.
std::string override_of(const TypedOption& option) {
  const bool is_path = option.name.find('.') != std::string::npos, sets = is_override(option.value);
  if (!is_path && sets) return option.value;
  const std::string key = is_path ? option.name : key_named(option.name);
  if (key.empty()) return "";
  if (option.name == "resume") return key + "=resume";
  if (option.value.empty() || sets) return key + "=VALUE";
  const bool is_count = option.value.find_first_not_of("0123456789") == std::string::npos;
  const bool counts_epochs = option.name.find("epoch") != std::string::npos;
  const char* unit = key != "train.duration" || !is_count ? "" : counts_epochs ? "ep" : "step";
  return key + "=" + option.value + unit;
}

/// True if the command takes words that set keys of its recipe.
bool takes_keys(const CLI::App& command) {
  return std::ranges::any_of(command.get_options(), [](const CLI::Option* option) {
    return option->get_type_name().ends_with("KEY=VALUE");
  });
}

/// Suggests the launcher, or a command's own option, for the number of ranks; "" for other options.
std::string rank_hint(const CLI::App& command, const TypedOption& option) {
  const Words names{"n",         "np",   "ranks",    "num-ranks", "nproc", "nproc_per_node",
                    "num_ranks", "gpus", "num-gpus", "num_gpus",  "world", "world_size"};
  if (std::ranges::find(names, option.name) == names.end()) return "";
  if (command.get_option_no_throw("--world") != nullptr) return "; did you mean '--world'?";
  const Words on_ranks{"train", "eval", "predict", "generate", "score", "doctor"};
  if (std::ranges::find(on_ranks, command.get_name()) == on_ranks.end()) return "";
  return "; the launcher starts the ranks: launch/run -n " +
         (option.value.empty() ? "N" : option.value) + " " + command.get_name() + " ...";
}

/// The letters and digits of an option's name: `topk` of `--top-k` and of `--top_k`.
std::string letters_and_digits_of(std::string name) {
  std::erase_if(name, [](unsigned char c) { return std::isalnum(c) == 0; });
  return name;
}

/// Suggests what the first unknown option may have meant: an option with the same letters and
/// digits, a recipe key, or the nearest option.
std::string option_hint(const CLI::App& command, const Words& words) {
  std::vector<std::string> options;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  }
  for (const std::string& word : command.remaining()) {
    if (!word.starts_with('-')) continue;
    const TypedOption option = typed_option(word, words);
    const std::string ranks = rank_hint(command, option);
    if (!ranks.empty()) return ranks;
    const auto own =
        std::ranges::find(options, letters_and_digits_of(option.name), letters_and_digits_of);
    if (own != options.end()) return "; did you mean '" + *own + "'?";
    const std::string meant = takes_keys(command) ? override_of(option) : "";
    return meant.empty() ? did_you_mean(word.substr(0, word.find('=')), options)
                         : "; keys of recipes are set without dashes: " + meant;
  }
  return "";
}

[[noreturn]] void refuse(const CLI::App& app, const CLI::ParseError& error, const Words& words) {
  const CLI::App* command = &app;
  std::string name = "shoal";
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  const std::string guess = option_hint(*command, words);
  throw Error(ExitCode::kUsage, name + ": " + error.what() + guess,
              guess.empty() ? "see " + name + " --help" : "");
}

std::string version_text(const BuildInfo& build) {
  return "shoal " + build.version + "\ncommit " + build.git_revision + "\nLibTorch " +
         build.torch_version + "\n" + build.mpi;
}

ExitCode run(int argc, char** argv) {
  CLI::App app("Shoal trains Mixture-of-Experts models from YAML recipes.", "shoal");
  app.set_version_flag("-v,--version", version_text(build_info()));
  app.footer("`shoal COMMAND --help` describes each command.");
  // One at most, so that `keys train` takes the second word for a key.
  app.require_subcommand(1);
  ExitCode code = ExitCode::kOk;
  add_subcommands(app, code, {argv, argv + argc});
  if (argc < 2) {
    std::cout << app.help();
    return ExitCode::kUsage;
  }
  const Words words = as_options({argv + 1, argv + argc});
  refuse_unknown_command(app, words);
  try {
    app.parse(Words(words.rbegin(), words.rend()));  // in this order; runs the subcommand
  } catch (const CLI::Success& help) {
    app.exit(help, std::cout);
  } catch (const CLI::ParseError& error) {
    refuse(app, error, words);
  }
  // What a training found is in its folder.
  const bool is_training = app.got_subcommand("train");
  if (!std::cout.flush() && code == ExitCode::kOk && !is_training) {
    throw StorageError("standard output could not be written");
  }
  return code;
}

/// Prints a failure once for the whole job: what is wrong with a recipe or a command line is wrong
/// on every rank, so the others leave the message to rank 0.
ExitCode report(const std::exception_ptr& error) {
  constexpr std::chrono::seconds kPatience{5};
  const LaunchInfo launch = read_launch_info(environment_variable);
  const int64_t rank = launch.rank;
  const Failure failure =
      describe_failure(error, launch.world > 1 ? std::optional(rank) : std::nullopt);
  // A signal that came before was the launcher's: rank 0 has printed its message and left.
  const bool is_ended = StopSignals::caught() != 0;
  if (rank != 0 && (is_ended || wait_for_end_of_job(kPatience))) return failure.code;
  std::cerr << failure.text << std::endl;
  return failure.code;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  // Ends before LibTorch takes its table of operators apart, a quarter of what `--help` took. What
  // is registered from here on, as MPI's end, runs first.
  on_exit(
      [](int status, void*) {
        std::cout.flush();
        std::fflush(nullptr);
        _exit(status);
      },
      nullptr);
  // A file that is opened where one of these is closed would get what is meant for the console.
  for (int file = STDIN_FILENO; file <= STDERR_FILENO; ++file) {
    if (fcntl(file, F_GETFD) < 0) open("/dev/null", O_RDWR);  // takes the lowest free number
  }
  shoal::use_process_parts();
  std::signal(SIGXFSZ, SIG_IGN);  // beyond `ulimit -f` a write fails with EFBIG instead
  try {
    return static_cast<int>(shoal::run(argc, argv));
  } catch (...) {
    return static_cast<int>(shoal::report(std::current_exception()));
  }
}
