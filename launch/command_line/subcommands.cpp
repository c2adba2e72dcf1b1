#include "launch/command_line/subcommands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <initializer_list>
#include <iostream>
#include <memory>
#include <system_error>

#include "launch/check/check.h"
#include "launch/convert/export.h"
#include "launch/convert/fold.h"
#include "launch/convert/import.h"
#include "launch/data/data.h"
#include "launch/evaluate/eval.h"
#include "launch/inspect/ckpt.h"
#include "launch/job/launch_info.h"
#include "launch/machine/doctor.h"
#include "launch/recipe/recipes.h"
#include "launch/train/train.h"
#include "runtime/base/text.h"
#include "runtime/options/registry.h"
#include "runtime/text/tokenize.h"
#include "runtime/text/tokenizer.h"
#include "runtime/yaml/config_scalar.h"

namespace shoal {
namespace {

std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

/// The file of a recipe: `path`, or the shipped recipe of that name, as `quickstart` or `gpt2/s`.
/// If it is missing, throws an error that suggests recipes of a similar name.
std::string recipe_file(const std::string& path) {
  std::error_code failed;
  if (path.empty() || std::filesystem::exists(path, failed) || failed) return path;
  const std::string folder = find_recipes_folder(own_program()), file = path + ".yaml";
  const std::string shipped = folder + "/" + file;
  if (std::filesystem::exists(shipped) && !std::filesystem::exists(file)) return shipped;
  const std::vector<std::string> near = nearest_recipes(path, folder);
  if (near.empty()) return path;
  throw ConfigError(
      fmt::format("{0}:1:1: cannot read '{0}': No such file or directory; did you "
                  "mean '{1}'?",
                  path, join_words(near, "' or '")));
}

void add_recipe(CLI::App& command, config::RecipeSource& source) {
  source.environment = environment_variable;
  add_value(command, "recipe", source.path, "RECIPE",
            "recipe file, YAML, or the name of a shipped recipe")
      ->required()
      ->transform(recipe_file)
      ->check(must_name("a file"));
  add_overrides(command, source.overrides);
}

// Functions that take `code` declare a subcommand, which sets it to its exit code.

void add_check(CLI::App& app, ExitCode& code) {
  CLI::App* command = app.add_subcommand("check",
                                         "Check a recipe and count its parameters, without reading "
                                         "samples or allocating the model");
  const auto arguments = std::make_shared<CheckArguments>();
  add_recipe(*command, arguments->source);
  command->add_option("--world", arguments->world, "ranks to check for (parallel.expert_ranks)")
      ->transform(strict_number(config::type_of<int64_t>(), in_range(1, 1'000'000)));
  command->add_flag(
      "--expressivity", arguments->expressivity,
      "bound the number of linear regions of the sparse MLPs, with and without permutations");
  command->add_flag("--memory", arguments->memory,
                    "estimate the memory per rank from two small trial steps; takes some seconds");
  add_json(*command, arguments->json);
  command->footer(
      examples("  shoal check configs/quickstart.yaml --memory\n"
               "  shoal check RECIPE.yaml --world 8 parallel.expert_ranks=4\n"
               "  shoal check RECIPE.yaml --json"));
  command->callback([&code, arguments] { code = check(*arguments, std::cout); });
}

void add_show(CLI::App& app, ExitCode& code) {
  CLI::App* command =
      app.add_subcommand("show", "Print every value of a recipe and where it was set");
  const auto arguments = std::make_shared<ShowArguments>();
  add_recipe(*command, arguments->source);
  command->add_flag("--minimal", arguments->minimal, "only what differs from the defaults");
  command->footer(
      examples("  shoal show configs/quickstart.yaml\n"
               "  shoal show RECIPE.yaml --minimal train.batch=64 '~optimizer.weight_decay'"));
  command->callback([&code, arguments] { code = show(*arguments, std::cout); });
}

void add_recipes(CLI::App& app, ExitCode& code) {
  CLI::App* command = app.add_subcommand("recipes", "List the recipes that come with Shoal");
  const auto words = std::make_shared<std::vector<std::string>>();
  add_value(*command, "words", *words, "WORD",
            "only recipes with these words in path or first sentence");
  command->footer(examples("  shoal recipes\n  shoal recipes vit moe"));
  command->callback(
      [&code, words] { code = recipes(find_recipes_folder(own_program()), *words, std::cout); });
}

void add_doctor(CLI::App& app, ExitCode& code) {
  CLI::App* command = app.add_subcommand(
      "doctor", "Check this machine and job: build, cores, memory, MPI, GPUs, a ring of messages");
  const auto as_json = std::make_shared<bool>(false);
  add_json(*command, *as_json);
  const auto calibrates = std::make_shared<bool>(false);
  command->add_flag("--calibrate", *calibrates,
                    "instead, measure the densities at which sparse products break even, and keep "
                    "them in the user's cache folder for runs with sparsity.execution: auto");
  command->footer(examples("  shoal doctor\n  mpirun -np 4 shoal doctor --json"));
  command->callback([&code, as_json, calibrates] {
    const LaunchInfo launch = read_launch_info(environment_variable);
    code = *calibrates ? calibrate(launch, std::cout) : doctor(*as_json, launch, std::cout);
  });
}

void add_train(CLI::App& app, ExitCode& code, const std::vector<std::string>& command_line) {
  CLI::App* command = app.add_subcommand("train", "Train a recipe, alone or under mpirun or srun");
  const auto arguments = std::make_shared<TrainArguments>();
  arguments->command_line = command_line;
  add_recipe(*command, arguments->source);
  command->add_flag("--override", arguments->override_fixed,
                    "resume even if the recipe differs from the checkpoint's, from the newest "
                    "checkpoint that can be read");
  command->footer(
      examples("  shoal train configs/quickstart.yaml\n"
               "  launch/run -n 2 train configs/quickstart.yaml run.name=mine train.duration=2ep\n"
               "  mpirun -np 4 shoal train RECIPE.yaml run.on_existing=resume"));
  command->callback([&code, arguments] {
    std::signal(SIGPIPE, SIG_IGN);  // a console that closes must not end a training
    code = train(*arguments, environment_variable);
  });
}

void add_eval(CLI::App& app, ExitCode& code) {
  CLI::App* command = app.add_subcommand("eval", "Evaluate a checkpoint on any number of ranks");
  const auto arguments = std::make_shared<EvalArguments>();
  add_weights(*command, arguments->checkpoint);
  add_overrides(*command, arguments->checkpoint.overrides);
  add_model_override(*command, arguments->checkpoint.override_model);
  add_json(*command, arguments->json);
  auto* images =
      add_value(*command, "--images", arguments->images.folder, "FOLDER",
                "draw the first samples, if the task has pictures of them, into this new "
                "or empty folder: PNG files and contact_sheet.png")
          ->check(must_name("a folder"));
  add_number(*command, "--count", arguments->images.count, in_range(1, 1000),
             "number of samples that --images draws")
      ->needs(images);
  command->add_flag("!--no-baselines", arguments->baselines,
                    "omit the baselines of the task, which are fitted on the training split");
  add_value(*command, "--predictions", arguments->predictions, "FILE.jsonl",
            "write one line of JSON per sample: label, most probable classes")
      ->check(must_name("a file in .jsonl", ".jsonl"));
  command->add_flag("--confusion", arguments->confusion,
                    "print recall, precision and F1 per class, the confusion matrix and the most "
                    "confident mistakes; also in the run's report");
  command->footer(
      examples("  shoal eval runs/quickstart\n"
               "  shoal eval runs/denoise --images pictures\n"
               "  shoal eval runs/quickstart --confusion --predictions predictions.jsonl\n"
               "  shoal eval runs/tiny_cifar10 --best --json data.path=/data/cifar-10-batches-bin\n"
               "  shoal eval runs/tiny_cifar10 data.source=image_folder data.path=photos\n"
               "  shoal eval runs/tiny_cifar10 evaluate.samples=2000"));
  command->callback(
      [&code, arguments] { code = eval(*arguments, environment_variable, std::cout); });
}

void add_ckpt(CLI::App& app, ExitCode& code) {
  CLI::App* ckpt = app.add_subcommand("ckpt", "Verify, list, compare or digest checkpoints");
  ckpt->require_subcommand(1);
  ckpt->footer(
      examples("  shoal ckpt verify runs/tiny_cifar10\n"
               "  shoal ckpt ls runs/tiny_cifar10 --json\n"
               "  shoal ckpt diff runs/a runs/b\n"
               "  shoal ckpt digest runs/tiny_cifar10/ckpt/step-00000100"));
  struct Subcommand {
    const char *name, *doc;
    ExitCode (*run)(const CheckpointArguments&, std::ostream&);
    bool takes_best = true, takes_other = false;
  };
  for (const Subcommand& which : std::initializer_list<Subcommand>{
           {"verify", "Check every byte; exit 0, 20 or 21", checkpoint_verify},
           {"ls", "List the checkpoints of a run with step, score and size", checkpoint_list,
            false},
           {"diff", "Compare two checkpoints tensor by tensor", checkpoint_diff, false, true},
           {"digest", "Print a hash of tensors, step and data position", checkpoint_digest}}) {
    CLI::App* command = ckpt->add_subcommand(which.name, which.doc);
    const auto arguments = std::make_shared<CheckpointArguments>();
    add_checkpoint_path(*command, arguments->checkpoint.path);
    if (which.takes_other) {
      add_value(*command, "other", arguments->other, "OTHER", "the checkpoint to compare with")
          ->required();
    }
    if (which.takes_best) {
      command->add_flag("--best", arguments->checkpoint.best, "use the best checkpoint of the run");
      command->add_flag("--override", arguments->checkpoint.override_model,
                        "use the newest or best checkpoint of the run that can be read");
    }
    add_json(*command, arguments->json);
    command->callback([&code, arguments, run = which.run] { code = run(*arguments, std::cout); });
  }
}

void add_import(CLI::App& app, ExitCode& code) {
  CLI::App* command =
      app.add_subcommand("import", "Convert weights of another program to a checkpoint");
  const auto arguments = std::make_shared<ImportArguments>();
  add_value(*command, "path", arguments->path, "FOLDER|FILE",
            "folder with model.safetensors (or its shards) and config.json, or one file")
      ->required();
  add_value(*command, "out", arguments->out, "OUT", "folder to create")->required();
  add_value(*command, "--as", arguments->format, "FORMAT",
            "their format: " + join_words(import_formats()))
      ->required();
  add_overrides(*command, arguments->overrides);
  add_json(*command, arguments->json);
  command->footer(
      examples("  shoal import vit_small_patch16_224 --as timm_vit vit_small\n"
               "  shoal import mixer.safetensors --as timm_mixer mixer model.gelu=tanh\n"
               "  shoal train RECIPE.yaml model.init_from=vit_small"));
  command->callback(
      [&code, arguments] { code = import_weights(*arguments, environment_variable, std::cout); });
}

void add_export(CLI::App& app, ExitCode& code) {
  CLI::App* command =
      app.add_subcommand("export", "Export a checkpoint's weights to other programs");
  const auto arguments = std::make_shared<ExportArguments>();
  add_weights(*command, arguments->checkpoint);
  add_value(*command, "out", arguments->out, "OUT", "folder to create")->required();
  add_value(*command, "--to", arguments->program, "PROGRAM",
            "target: " + join_words(export_programs()) + "; safetensors supports any model")
      ->required();
  add_value(*command, "--dtype", arguments->dtype, "DTYPE",
            "float32, float64, bfloat16 or float16; default: the dtype of each tensor");
  add_json(*command, arguments->json);
  command->footer(
      examples("  shoal export runs/mixer_tiny_cifar10 --to timm mixer\n"
               "  shoal export runs/gpt2 --best --to hf gpt2 --dtype bfloat16\n"
               "  shoal export runs/sparse_mlp --to safetensors sparse_mlp"));
  command->callback([&code, arguments] { code = export_weights(*arguments, std::cout); });
}

void add_fold(CLI::App& app, ExitCode& code) {
  CLI::App* command =
      app.add_subcommand("fold", "Fold the permutations of a sparse model into its weights");
  const auto arguments = std::make_shared<FoldArguments>();
  add_weights(*command, arguments->checkpoint);
  add_value(*command, "out", arguments->out, "OUT", "folder to create")->required();
  add_json(*command, arguments->json);
  command->footer(
      "A layer multiplies by S P: the sparse weight S with its columns or rows in the order of\n"
      "the permutation P. OUT stores S P as its weight, so no inputs have to be moved. Outputs of\n"
      "dense products are bitwise identical; those of sparse kernels are equal up to rounding.\n"
      "The layers before and after do not change. OUT is like a run folder, without optimizer\n"
      "state.\n" +
      examples("  shoal fold runs/padst folded\n"
               "  shoal eval folded\n"
               "  shoal train folded/resolved.yaml model.init_from=folded run.name=tuned"));
  command->callback([&code, arguments] { code = fold(*arguments, std::cout); });
}

/// One option for each key of a text's format and of each tokenizer.
void add_tokenize_keys(CLI::App& command, TokenizeArguments& arguments) {
  const auto add = [&](const config::FieldInfo& field, const std::string& doc) {
    const std::string key(field.name);
    std::string name = "--" + key;
    std::ranges::replace(name, '_', '-');
    if (CLI::Option* known = command.get_option_no_throw(name)) {
      known->description(known->get_description() + "; " + doc);
      return;
    }
    const auto set = [&arguments, key](const std::string& value) {
      arguments.options.emplace_back(key, value);
    };
    CLI::Option* option = command.add_option_function<std::string>(name, set, doc);
    if (!field.type().words.empty()) offer_values(*option, field.type().words);
  };
  for (const auto& field : config::type_of<TextFormat>().fields)
    add(field, std::string(field.rules.doc));
  for (const config::MemberInfo* member : members_of<Tokenizer>().members()) {
    for (const config::FieldInfo& field : member->options_type().fields) {
      add(field, fmt::format("of {}: {}", member->name, field.rules.doc));
    }
  }
}

void add_tokenize(CLI::App& data, ExitCode& code) {
  CLI::App* command = data.add_subcommand(
      "tokenize", "Encode text files into one token file, in the format of llm.c");
  const auto arguments = std::make_shared<TokenizeArguments>();
  add_value(*command, "files", arguments->files, "FILES", "text files, encoded in this order")
      ->required();
  offer_values(*add_value(*command, "--tokenizer", arguments->tokenizer, "NAME", "which tokenizer")
                    ->required(),
               members_of<Tokenizer>().names());
  add_tokenize_keys(*command, *arguments);
  add_value(*command, "--out", arguments->out, "X.bin",
            "the token file; its sidecar X.bin.json records tokenizer and sources. A token "
            "file of that name is replaced once the new one is complete; any other is left "
            "alone")
      ->required();
  add_json(*command, arguments->json);
  command->footer(
      "Each file is encoded separately. Without --documents, nothing is put between files.\n" +
      examples(
          "  shoal data tokenize wiki.train.tokens --tokenizer bytes --out train.bin\n"
          "  shoal data tokenize a.txt b.txt --tokenizer gpt2 --vocab vocab.json "
          "--merges merges.txt --out ab.bin\n"
          "  shoal data tokenize pages.jsonl --documents lines --tokenizer gpt2 --vocab vocab.json "
          "--merges merges.txt --out pages.bin"));
  command->callback([&code, arguments] { code = tokenize(*arguments, std::cout); });
}

/// Reads the number of a size such as 256MB as a recipe's; returns what is wrong.
std::string strict_size(std::string& size) {
  const std::size_t end = size.find_last_of("0123456789.") + 1;
  std::string problem;
  const std::optional<int64_t> number = config::parse_integer(size.substr(0, end), problem);
  if (number) size.replace(0, end, std::to_string(*number));
  return number ? "" : problem + "; allowed: 1024 bytes to 1TiB, as 256MB";
}

void add_pack(CLI::App& data, ExitCode& code) {
  CLI::App* command = data.add_subcommand(
      "pack", "Pack a folder of images into shards for data.source: tar_shards");
  const auto arguments = std::make_shared<PackArguments>();
  add_value(*command, "folder", arguments->plan.folder, "FOLDER",
            "JPEG and PNG files in it and its subfolders, as image_folder finds them")
      ->required();
  add_value(*command, "--out", arguments->plan.out, "DIR", "new or empty folder for the shards")
      ->required();
  command
      ->add_option("--shard-size", arguments->plan.shard_bytes, "maximum size of a shard, as 256MB")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true))
      ->transform(CLI::Validator(strict_size, ""))  // before that one
      ->check(CLI::Range(int64_t{1024}, int64_t{1} << 40))
      ->default_str("256MB");
  command->add_flag("--classes", arguments->plan.has_classes,
                    "subfolders are classes, numbered in order of name; samples are labelled");
  add_value(*command, "--classes-of", arguments->plan.classes_of, "DIR",
            "like --classes, with classes numbered as in these shards");
  add_json(*command, arguments->json);
  command->footer(
      "Samples keep the order of the folder; training shuffles them. The same images give the "
      "same\n"
      "bytes. If packing is killed, DIR contains no .tar file.\n" +
      examples("  shoal data pack imagenet/train --classes --out shards/train\n"
               "  shoal data pack imagenet/val --classes-of shards/train --out shards/val\n"
               "  shoal data pack photographs --out shards/train --shard-size 1GB"));
  command->callback([&code, arguments] { code = pack(*arguments, std::cout); });
}

void add_verify(CLI::App& data, ExitCode& code) {
  CLI::App* command =
      data.add_subcommand("verify", "Check shards, their labels and indices; exit 0 or 13");
  const auto arguments = std::make_shared<VerifyArguments>();
  add_value(*command, "paths", arguments->paths, "DIR|FILE.tar", "shards, or folders of shards")
      ->required();
  command->add_flag("--decode", arguments->decodes, "also decode every image");
  add_json(*command, arguments->json);
  command->footer(
      examples("  shoal data verify shards/train shards/val\n"
               "  shoal data verify shards/train/shard-000000.tar --decode"));
  command->callback([&code, arguments] { code = verify_data(*arguments, std::cout); });
}

void add_data(CLI::App& app, ExitCode& code) {
  CLI::App* data = app.add_subcommand("data", "Prepare and check data");
  data->require_subcommand(1);
  add_prepare(*data, code);
  add_split(*data, code);
  add_tokenize(*data, code);
  add_pack(*data, code);
  add_verify(*data, code);
}

}  // namespace

void add_subcommands(CLI::App& app, ExitCode& code, const std::vector<std::string>& command_line) {
  add_train(app, code, command_line);
  add_eval(app, code);
  add_predict(app, code);
  add_generate(app, code);
  add_score(app, code);
  add_check(app, code);
  add_show(app, code);
  add_keys(app, code);
  add_recipes(app, code);
  add_new(app, code);
  add_inspect(app, code);
  add_runs(app, code);
  add_report(app, code);
  add_ckpt(app, code);
  add_import(app, code);
  add_export(app, code);
  add_fold(app, code);
  add_data(app, code);
  add_doctor(app, code);
  add_descriptions(app, code);
}

}  // namespace shoal
