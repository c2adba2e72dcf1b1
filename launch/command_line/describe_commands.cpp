#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "launch/command_line/command_description.h"
#include "launch/command_line/subcommands.h"
#include "runtime/base/build_info.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

OptionDescription describe(const CLI::Option& option) {
  OptionDescription result;
  result.doc = option.get_description();
  for (const std::string& name : option.get_snames()) result.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) result.names.push_back("--" + name);
  if (option.get_items_expected_max() > 0) {
    // Type, then check: `INT:at least 1`, `SHELL:{bash,zsh}` (by CLI::IsMember or offer_values).
    const std::string type = option.get_type_name();
    const std::size_t colon = type.find(':');
    result.value = type.substr(0, colon);
    if (colon != std::string::npos && type[colon + 1] == '{' && type.ends_with('}')) {
      result.choices = split(type.substr(colon + 2, type.size() - colon - 3), ',');
    }
  }
  result.is_required = option.get_required();
  result.repeats = option.get_items_expected_max() > 1;
  return result;
}

/// CLI11 hands a footer down to the commands that have none: `inherited`.
CommandDescription describe(const CLI::App& app, const std::string& inherited = "") {
  CommandDescription result;
  result.name = app.get_name();
  result.doc = app.get_description();
  if (app.get_footer() != inherited) result.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options()) {
    (option->nonpositional() ? result.options : result.words).push_back(describe(*option));
  }
  for (const CLI::App* command : app.get_subcommands({})) {
    result.commands.push_back(describe(*command, app.get_footer()));
  }
  return result;
}

}  // namespace

void add_descriptions(CLI::App& app, ExitCode& code) {
  CLI::App* completion = app.add_subcommand("completion", "Print the completion script of a shell");
  const auto shell = std::make_shared<std::string>();
  completion->add_option("shell", *shell, "which shell")
      ->type_name("SHELL")
      ->check(CLI::IsMember(completion_shells()))
      ->required();
  completion->footer(
      examples("  source <(shoal completion bash)\n"
               "  shoal completion zsh > ~/.zfunc/_shoal\n"
               "  shoal completion fish > ~/.config/fish/completions/shoal.fish"));
  completion->callback([&app, &code, shell] {
    std::cout << completion_script(describe(app), *shell);
    code = ExitCode::kOk;
  });
  CLI::App* manual = app.add_subcommand("man", "Print the manual page, in roff format");
  manual->footer(examples("  shoal man | man -l -"));
  manual->callback([&app, &code] {
    std::cout << manual_page(describe(app), build_info());
    code = ExitCode::kOk;
  });
}

}  // namespace shoal
