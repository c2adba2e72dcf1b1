#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>

#include "launch/command_line/shared_options.h"
#include "launch/data/data.h"

namespace shoal {

void add_prepare(CLI::App& data, ExitCode& code) {
  CLI::App* command = data.add_subcommand(
      "prepare", "Check and unpack a published data set, or tell where its archive is");
  const auto arguments = std::make_shared<PrepareArguments>();
  offer_values(*command->add_option("name", arguments->name, "data set")->required(), {"cifar10"});
  command
      ->add_option("given", arguments->given,
                   "the archive, or its unpacked folder; without it: tell where the archive is")
      ->type_name("ARCHIVE|FOLDER");
  command->add_option("--out", arguments->out, "folder to make of an archive")
      ->type_name("DIR")
      ->capture_default_str();
  command->footer(
      "Nothing is fetched: Shoal uses no network.\n"
      "Examples:\n"
      "  shoal data prepare cifar10\n"
      "  shoal data prepare cifar10 cifar-10-binary.tar.gz --out /data/cifar10");
  command->callback([&code, arguments] { code = prepare(*arguments, std::cout); });
}

void add_split(CLI::App& data, ExitCode& code) {
  CLI::App* command = data.add_subcommand(
      "split", "Split the files of class folders into train/ and val/, by links");
  const auto arguments = std::make_shared<SplitArguments>();
  command->add_option("folder", arguments->folder, "its subfolders are the classes")
      ->type_name("FOLDER")
      ->required();
  command
      ->add_option("--valid", arguments->valid_percent,
                   "share of each class for val/, at least one file")
      ->type_name("PERCENT%")
      ->required()
      ->transform(strict_number(config::type_of<double>(), in_range(above(0), below(100))))
      ->transform(CLI::Validator(
          [](std::string& text) {
            const bool has_sign = text.ends_with('%');
            text.resize(text.size() - (has_sign ? 1 : 0));
            return has_sign ? std::string() : "expected a share such as 10%, found " + text;
          },
          ""));  // before that one
  command->add_option("--out", arguments->out, "folder to make; default: FOLDER_split")
      ->type_name("DIR");
  command->add_option("--seed", arguments->seed, "of the draw")
      ->transform(integer_in(at_least(0)))
      ->capture_default_str();
  command->footer(
      "Links are hard, to another disk symbolic; FOLDER stays as it is.\n"
      "Examples:\n  shoal data split photographs --valid 10% --out /data/photographs");
  command->callback([&code, arguments] { code = split(*arguments, std::cout); });
}

}  // namespace shoal
