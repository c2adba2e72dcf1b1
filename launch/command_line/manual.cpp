#include <fmt/format.h>

#include <utility>

#include "launch/command_line/command_description.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

constexpr std::pair<ExitCode, const char*> kExitStatus[] = {
    {ExitCode::kOk, "success"},
    {ExitCode::kUsage, "the command line is wrong"},
    {ExitCode::kRecipe, "the recipe is wrong"},
    {ExitCode::kTopology, "ranks, expert ranks, units, memory or devices do not fit"},
    {ExitCode::kMismatch, "recipe and checkpoint differ"},
    {ExitCode::kData, "a data file is missing or wrong"},
    {ExitCode::kVersionSkew, "the ranks run different builds or recipes"},
    {ExitCode::kBusy, "another job works in the run folder"},
    {ExitCode::kCheckpoint, "a checkpoint is corrupt, or none is valid"},
    {ExitCode::kStorage, "reading or writing failed: disk full or input/output error"},
    {ExitCode::kNumeric, "too many steps in a row were not finite"},
    {ExitCode::kDivergence, "the state of the ranks differs"},
    {ExitCode::kInternal, "an error in shoal itself"},
    {ExitCode::kPreempted, "stopped, the state is saved; run.on_existing=resume continues"},
};

/// Text that roff prints as it is.
std::string roff(std::string text) {
  text = replaced(replaced("\n" + text, "\\", "\\e"), "-", "\\-");
  // Lines that begin so are requests.
  text = replaced(replaced(text, "\n.", "\n\\&."), "\n'", "\n\\&'");
  return text.substr(1);
}

std::string option_entry(const OptionDescription& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names)
    names.push_back(fmt::format("\\fB{}\\fR", roff(name)));
  std::string head = join_words(names, ", ");
  if (!option.value.empty()) {
    head += fmt::format("{}\\fI{}\\fR", head.empty() ? "" : " ", roff(option.value));
  }
  std::string doc = option.doc;
  if (!option.choices.empty()) doc += fmt::format(": {}", join_words(option.choices));
  return fmt::format(".TP\n{}\n{}\n", head, roff(doc));
}

std::string command_section(const CommandDescription& command, const std::string& path) {
  const std::string before = path.empty() ? "" : path + " ";
  std::string text;
  if (command.commands.empty()) {
    text += fmt::format(".SS {}\n{}.\n", roff(before + synopsis(command)), roff(command.doc));
    for (const OptionDescription& word : command.words) text += option_entry(word);
    for (const OptionDescription& option : command.options) {
      if (option.names.back() != "--help") text += option_entry(option);
    }
  }
  for (const CommandDescription& below : command.commands) {
    text += command_section(below, before + command.name);
  }
  if (!command.footer.empty()) text += fmt::format(".PP\n.nf\n{}\n.fi\n", roff(command.footer));
  return text;
}

constexpr const char* kEnvironment = R"(.SH ENVIRONMENT
.TP
.B OMP_NUM_THREADS
threads per rank, where
.B run.threads
is not set
.TP
.B XDG_CACHE_HOME
where the cache of token files and the densities measured by
.B shoal doctor \-\-calibrate
are, in
.IR shoal ;
default:
.I ~/.cache
.PP
Recipes may read others by
.BR ${env:NAME} .
.SH SEE ALSO
.BR mpirun (1),
.BR srun (1)
)";

}  // namespace

std::string synopsis(const CommandDescription& command) {
  std::string text = command.name;
  for (const OptionDescription& word : command.words) {
    const std::string value = word.value + (word.repeats ? " ..." : "");
    text += word.is_required ? " " + value : " [" + value + "]";
  }
  for (const OptionDescription& option : command.options) {
    if (option.is_required) text += " " + option.names.back() + " " + option.value;
  }
  return text + " [OPTION ...]";
}

std::string manual_page(const CommandDescription& program, const BuildInfo& build) {
  std::string text = fmt::format(
      ".TH SHOAL 1 \"\" \"shoal {}\" \"User Commands\"\n.SH NAME\nshoal \\- {}\n"
      ".SH SYNOPSIS\n.B shoal\n.I COMMAND\n[\\fIARGUMENT\\fR ...]\n.br\n.B mpirun \\-np\n"
      ".I RANKS\n.B shoal\n.I COMMAND\n[\\fIARGUMENT\\fR ...]\n.SH DESCRIPTION\n{}\n"
      "{}\n",
      roff(build.version), "train Mixture-of-Experts models", roff(program.doc),
      roff("A key of a recipe is set by KEY=VALUE and removed by ~KEY, the last one wins; "
           "shoal keys documents them. Options of every command: --help."));
  for (const OptionDescription& option : program.options) text += option_entry(option);
  text += ".SH COMMANDS\n";
  for (const CommandDescription& command : program.commands) text += command_section(command, "");
  text += ".SH EXIT STATUS\n";
  for (const auto& [code, doc] : kExitStatus) {
    text += fmt::format(".TP\n.B {}\n{}\n", static_cast<int>(code), roff(doc));
  }
  text += ".PP\nckpt diff and inspect \\-\\-diff end with 1 where they found a difference.\n";
  return text + kEnvironment;
}

}  // namespace shoal
