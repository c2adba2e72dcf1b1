#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>

#include "launch/command_line/subcommands.h"
#include "launch/job/launch_info.h"
#include "launch/predict/generate.h"
#include "launch/predict/score.h"

namespace shoal {
namespace {

void add_sampling(CLI::App& command, GenerateArguments& arguments) {
  add_number(command, "--tokens", arguments.tokens, in_range(1, int64_t{1} << 40),
             "maximum number of tokens of each text");
  add_number(command, "--temperature", arguments.sampling.temperature, in_range(0, 1e6),
             "divides the logits; 0: always the most probable token");
  add_number(command, "--top-k", arguments.sampling.top_k, at_least(0),
             "sample from this many most probable tokens; 0: from all");
  add_number(command, "--top-p", arguments.sampling.top_p, in_range(above(0), 1),
             "sample from the smallest set of most probable tokens that together have this "
             "probability");
  command.add_option("--seed", arguments.seed, "seed of sampling; default: run.seed of the recipe")
      ->transform(strict_number(config::type_of<int64_t>(), at_least(0)));
  add_number(command, "--samples", arguments.samples, in_range(1, 1'000'000), "texts per prompt");
  add_number(command, "--batch", arguments.batch, in_range(1, 1'000'000),
             "texts generated at once, over all ranks; affects a text only by rounding");
}

}  // namespace

void add_generate(CLI::App& app, ExitCode& code) {
  CLI::App* command =
      app.add_subcommand("generate", "Generate text with a language model, on any number of ranks");
  const auto arguments = std::make_shared<GenerateArguments>();
  add_weights(*command, arguments->checkpoint);
  add_overrides(*command, arguments->checkpoint.overrides);
  add_value(*command, "--prompt", arguments->prompts, "TEXT", "text to continue; may be repeated")
      ->allow_extra_args(false);
  add_value(*command, "--prompt-file", arguments->prompt_files, "FILE",
            "file whose whole text is continued; -: standard input, which is also read if "
            "no prompt is given; may be repeated")
      ->allow_extra_args(false);
  add_sampling(*command, *arguments);
  add_model_override(*command, arguments->checkpoint.override_model);
  command->add_flag(
      "--json", arguments->json,
      "one JSON object on stdout: prompt, text, tokens (IDs), stop; for several texts "
      "a list of them, sequences");
  command->footer(
      examples("  shoal generate runs/tiny --prompt 'The ' --temperature 0.8 --top-k 40\n"
               "  shoal generate runs/tiny --best --prompt-file start.txt --tokens 500 --json\n"
               "  printf 'Once' | shoal generate runs/tiny\n"
               "  mpirun -np 4 shoal generate runs/moe --prompt 'Once' --samples 8 --seed 7"));
  command->callback(
      [&code, arguments] { code = generate(*arguments, environment_variable, std::cout); });
}

void add_score(CLI::App& app, ExitCode& code) {
  CLI::App* command = app.add_subcommand(
      "score", "Score continuations with a language model, on any number of ranks");
  const auto arguments = std::make_shared<ScoreArguments>();
  add_weights(*command, arguments->checkpoint);
  add_value(*command, "file", arguments->file, "FILE", "lines of JSON; -: standard input")
      ->required();
  add_overrides(*command, arguments->checkpoint.overrides);
  add_value(*command, "--out", arguments->out, "FILE", "new file; default: stdout");
  add_model_override(*command, arguments->checkpoint.override_model);
  command->footer(
      "A line is {\"context\": ..., \"continuation\": ...}, two texts or two lists of token IDs. "
      "The\n"
      "output has its other fields, logprob (of the continuation, in nats), greedy (whether each\n"
      "of its tokens is the most probable one) and tokens (their number).\n" +
      examples("  shoal score runs/tiny questions.jsonl --out scores.jsonl\n"
               "  printf '{\"context\": \"2 + 2 =\", \"continuation\": \" 4\"}' | shoal score "
               "runs/tiny -"));
  command->callback(
      [&code, arguments] { code = score(*arguments, environment_variable, std::cout); });
}

}  // namespace shoal
