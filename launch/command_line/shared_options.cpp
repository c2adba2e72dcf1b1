#include "launch/command_line/subcommands.h"

#include <fmt/format.h>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "launch/data/data.h"
#include "launch/inspect/inspect.h"
#include "launch/job/console.h"
#include "launch/job/launch_info.h"
#include "launch/new_recipe/new.h"
#include "launch/predict/predict.h"
#include "launch/recipe/keys.h"
#include "launch/recipe/recipe.h"
#include "launch/report/report.h"
#include "launch/runs/runs.h"
#include "moe/routing/router.h"
#include "runtime/base/text.h"
#include "runtime/options/config_value.h"
#include "runtime/yaml/config_node.h"

namespace shoal {

CLI::Option* add_value(CLI::App& command, const char* name, std::string& value, const char* type,
                       const std::string& doc) {
  return command.add_option(name, value, doc)->type_name(type);
}

CLI::Option* add_value(CLI::App& command, const char* name, std::vector<std::string>& values,
                       const char* type, const std::string& doc) {
  return command.add_option(name, values, doc)->type_name(type);
}

std::function<std::string(const std::string&)> must_name(const std::string& what,
                                                         const std::string& ending) {
  return [what, ending](const std::string& name) {
    return name.empty() || !name.ends_with(ending) ? "must name " + what : std::string();
  };
}

void add_checkpoint_path(CLI::App& command, std::string& path) {
  add_value(command, "path", path, "PATH",
            "folder of a checkpoint, or of a run: its newest checkpoint")
      ->required();
}

void add_weights(CLI::App& command, CheckpointChoice& choice) {
  add_value(command, "path", choice.path, "CKPT|RUN", "checkpoint, or run (its newest checkpoint)")
      ->required();
  command.add_flag("--best", choice.best, "use the run's best checkpoint");
  add_raw_weights(command, choice.raw_weights);
}

void add_overrides(CLI::App& command, std::vector<std::string>& overrides) {
  add_value(command, "overrides", overrides, "KEY=VALUE",
            "key=value sets a key, ~key removes one; the last one wins");
}

void offer_values(CLI::Option& option, const std::vector<std::string>& values) {
  option.check(
      CLI::Validator([](std::string&) { return ""; }, "{" + join_words(values, ",") + "}"));
}

void add_json(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "one JSON object on stdout");
}

void add_raw_weights(CLI::App& command, bool& raw_weights) {
  command.add_flag("--raw-weights", raw_weights,
                   "use the weights themselves, not their averages, if the checkpoint has both "
                   "(train.average)");
}

void add_model_override(CLI::App& command, bool& override_model) {
  command.add_flag(
      "--override", override_model,
      "use the weights even if the model differs from the one they were trained in; of "
      "a run, the newest or best checkpoint that can be read");
}

CLI::Validator strict_number(const config::Type& type, const Range& range) {
  const auto read = [&type, range](std::string& text) {
    FieldRules rules;
    rules.range = range;
    config::Node node;
    node.kind = config::Node::Kind::kScalar;
    node.text = text;
    const std::shared_ptr<void> number = type.make();
    const std::string problem = config::read_single(type, number.get(), node, rules);
    text = config::write_single(type, number.get());
    const bool has_range = problem.empty() || problem.starts_with("must be");
    return has_range ? problem : problem + "; allowed: " + config::range_text(range);
  };
  return {read, config::range_text(range)};
}

template <class Number>
CLI::Option* add_number(CLI::App& command, const char* name, Number& number, const Range& range,
                        const char* doc) {
  return command.add_option(name, number, doc)
      ->transform(strict_number(config::type_of<Number>(), range))
      ->capture_default_str();
}

template CLI::Option* add_number(CLI::App&, const char*, int64_t&, const Range&, const char*);
template CLI::Option* add_number(CLI::App&, const char*, double&, const Range&, const char*);

namespace {

/// Makes an option exclude each of `others`, which it is added to.
void exclude(CLI::Option* option, std::vector<CLI::Option*>& others) {
  for (CLI::Option* other : others) option->excludes(other);
  others.push_back(option);
}

/// Options that draw on images into a folder, which are added to `others`.
void add_image_maps(CLI::App& command, InspectArguments& arguments,
                    std::vector<CLI::Option*>& others) {
  const auto add = [&](const char* name, std::string& folder, const char* doc) {
    exclude(add_value(command, name, folder, "FOLDER", doc), others);
  };
  add("--activation-maps", arguments.activation_maps,
      "draw what the units of Nexus layers attend to, into this new folder");
  add("--expert-maps", arguments.expert_maps,
      "draw which expert each image patch is routed to, into this new folder, and describe "
      "the patches of each expert");
  add_number(command, "--images", arguments.images, in_range(1, 1000),
             "with --activation-maps or --expert-maps: number of images, the first ones of the "
             "validation split");
}

std::function<std::string(const std::string&)> must_be_html() {
  return must_name("a file in .html", ".html");
}

/// Options that show masks and permutations, which are added to `others`.
void add_sparsity(CLI::App& command, InspectArguments& arguments,
                  std::vector<CLI::Option*>& others) {
  CLI::Option* sparsity = command.add_flag(
      "--sparsity", arguments.sparsity,
      "masks and permutations of the sparse layers, in one or all checkpoints of a run");
  exclude(sparsity, others);
  add_value(command, "-o,--output", arguments.page, "FILE.html",
            "with --sparsity: draw them into this page, replacing it")
      ->check(must_be_html())
      ->needs(sparsity);
}

void add_gate_maps(CLI::App& command, InspectArguments& arguments,
                   std::vector<CLI::Option*>& others) {
  CLI::Option* gates =
      add_value(command, "--gates", arguments.gates, "FILE.html",
                "draw which tokens attend in which layer, into this page, replacing it")
          ->check(must_be_html());
  exclude(gates, others);
  CLI::Option* samples =
      add_number(command, "--samples", arguments.samples, in_range(1, 1000),
                 "with --gates: number of samples, the first ones of the validation split")
          ->needs(gates);
  command
      .add_option("--prompt", arguments.prompt,
                  "with --gates: use this text instead of validation samples")
      ->type_name("TEXT")
      ->needs(gates)
      ->excludes(samples);
}

ExitCode run_inspect(const CLI::App& command, const InspectArguments& arguments) {
  if (command.count("--images") > 0 &&
      command.count("--activation-maps") + command.count("--expert-maps") == 0) {
    throw CLI::RequiresError("--images", "--activation-maps or --expert-maps");
  }
  if (const int64_t world = read_launch_info(environment_variable).world; world > 1) {
    throw Error(ExitCode::kUsage, fmt::format("inspect runs in one process, not in {}", world),
                "start it without mpirun");
  }
  const bool draws = !arguments.gates.empty() || !arguments.activation_maps.empty() ||
                     !arguments.expert_maps.empty();
  for (const char* option : {"--raw-weights", "overrides"}) {
    if (draws || command.count(option) == 0) continue;
    throw CLI::RequiresError(option, "--activation-maps, --expert-maps or --gates");
  }
  return inspect(arguments, environment_variable, std::cout);
}

}  // namespace

void add_inspect(CLI::App& app, ExitCode& code) {
  CLI::App* command = app.add_subcommand("inspect", "Show the contents of a checkpoint");
  const auto arguments = std::make_shared<InspectArguments>();
  add_checkpoint_path(*command, arguments->checkpoint.path);
  CLI::Option* tensors =
      command->add_flag("--tensors", arguments->tensors, "every tensor with its range and norm");
  CLI::Option* experts = command->add_flag("--experts", arguments->experts,
                                           "load of the run's experts at the checkpoint's step");
  add_value(*command, "--heat-map", arguments->heat_map, "FILE.svg",
            "with --experts: draw their loads over time into this file, replacing it")
      ->check(must_name("a file"))
      ->needs(experts);
  CLI::Option* diff = add_value(*command, "--diff", arguments->diff, "OTHER",
                                "compare with this checkpoint, value by value");
  std::vector<CLI::Option*> kinds;
  for (CLI::Option* kind : {tensors, experts, diff}) exclude(kind, kinds);
  add_sparsity(*command, *arguments, kinds);
  add_image_maps(*command, *arguments, kinds);
  add_gate_maps(*command, *arguments, kinds);
  add_raw_weights(*command, arguments->checkpoint.raw_weights);
  add_overrides(*command, arguments->checkpoint.overrides);
  command->add_flag("--best", arguments->checkpoint.best, "use the best checkpoint of the run");
  add_model_override(*command, arguments->checkpoint.override_model);
  add_json(*command, arguments->json);
  command->footer(
      examples("  shoal inspect runs/tiny_cifar10\n"
               "  shoal inspect runs/tiny_cifar10 --best --tensors\n"
               "  shoal inspect runs/tiny_cifar10 --experts --heat-map loads.svg\n"
               "  shoal inspect runs/nexus --activation-maps maps --images 4\n"
               "  shoal inspect runs/denoiser --expert-maps maps --images 4\n"
               "  shoal inspect runs/hspmn --gates gates.html --samples 4\n"
               "  shoal inspect runs/padst --sparsity -o sparsity.html\n"
               "  shoal inspect runs/a/ckpt/step-00000100 --diff runs/b/ckpt/step-00000100"));
  command->callback([&code, command, arguments] { code = run_inspect(*command, *arguments); });
}

void add_keys(CLI::App& app, ExitCode& code) {
  CLI::App* command = app.add_subcommand(
      "keys", "Document the keys of recipes: type, range, unit, default and choices");
  const auto arguments = std::make_shared<KeysArguments>();
  add_value(*command, "name", arguments->name, "NAME",
            "this key and those below it (leading parts may be omitted), or this choice, such as "
            "rigl. Without a name: an overview of all sections");
  const auto add = [&](const char* name, std::string& member, const char* doc,
                       const config::MemberSet& set) {
    offer_values(*add_value(*command, name, member, "NAME", doc), set.names());
  };
  add("--backbone", arguments->backbone, "only keys of recipes with this backbone",
      members_of<Backbone>());
  add("--task", arguments->task, "only keys of recipes with this task", members_of<Task>());
  add("--router", arguments->router, "only keys of recipes with this router", members_of<Router>());
  add("--data", arguments->data, "only keys of this data source", members_of<DataSource>());
  command->add_flag("--all", arguments->all, "document every key");
  command->footer(
      examples("  shoal keys\n"
               "  shoal keys optimizer\n"
               "  shoal keys train.batch\n"
               "  shoal keys exchange.chunks\n"
               "  shoal keys --backbone vit\n"
               "  shoal keys model.moe.router --backbone vit --router top_k"));
  command->callback([&code, arguments] {
    arguments->columns = terminal_columns(STDOUT_FILENO);
    if (!arguments->columns) arguments->columns = read_launch_info(environment_variable).columns;
    code = keys(*arguments, std::cout);
  });
}

void add_new(CLI::App& app, ExitCode& code) {
  CLI::App* command = app.add_subcommand("new", "Print a valid, commented recipe to start from");
  const auto arguments = std::make_shared<NewArguments>();
  offer_values(
      *add_value(*command, "--backbone", arguments->backbone, "NAME", "which model")->required(),
      new_recipe_backbones());
  command
      ->add_option("--experts", arguments->experts,
                   "experts per layer; 0: none. Default: 0 if the backbone may be dense, else 4")
      ->transform(strict_number(config::type_of<int64_t>(), in_range(0, 4096)));
  offer_values(*add_value(*command, "--data", arguments->data, "SOURCE",
                          "data source; default: shapes (drawn images) or text"),
               new_recipe_sources());
  add_value(*command, "--path", arguments->path, "FOLDER",
            "data.path, the folder of the data; an image source and its classes are detected");
  command->footer("The task follows from backbone and data.\n" +
                  examples("  shoal new --backbone vit --experts 8 > mine.yaml\n"
                           "  shoal new --backbone vit --data cifar --path ~/cifar-10-batches-bin\n"
                           "  shoal new --backbone gpt2 --experts 8 --data text"));
  command->callback([&code, arguments] { code = new_recipe(*arguments, std::cout); });
}

void add_runs(CLI::App& app, ExitCode& code) {
  CLI::App* command = app.add_subcommand("runs", "List and compare runs, or remove failed ones");
  const auto arguments = std::make_shared<RunsArguments>();
  add_value(*command, "folders", arguments->folders, "FOLDER",
            "folders of runs, at any depth; default: runs");
  add_value(*command, "--columns", arguments->columns, "KEY,KEY...",
            "what to list of each run: columns, or keys of recipes such as optimizer.lr");
  add_value(*command, "--sort", arguments->sort, "KEY", "by such a key; -KEY in reverse order");
  add_value(*command, "--filter", arguments->words, "WORD",
            "only runs whose names have all these words, or that have KEY=VALUE");
  add_json(*command, arguments->json);
  CLI::Option* prunes = command->add_flag(
      "--prune", arguments->prunes,
      "list what can be removed: superseded attempts, and failed or crashed runs that have no "
      "checkpoint, no live job and no other files");
  for (const char* other : {"--json", "--columns"}) prunes->excludes(command->get_option(other));
  command->add_flag("--yes", arguments->removes, "with --prune: remove them")->needs(prunes);
  command->footer(
      examples("  shoal runs\n"
               "  shoal runs /scratch/runs --sort -score --filter vit state=done\n"
               "  shoal runs --columns optimizer.lr,run.seed,score --filter optimizer.name=adamw\n"
               "  shoal runs --prune --yes"));
  command->callback([&code, arguments] {
    if (read_launch_info(environment_variable).rank == 0) code = runs(*arguments, std::cout);
  });
}

void add_predict(CLI::App& app, ExitCode& code) {
  CLI::App* command = app.add_subcommand(
      "predict", "Classify images or lines of text, or restore images, on any number of ranks");
  const auto arguments = std::make_shared<PredictArguments>();
  add_weights(*command, arguments->checkpoint);
  add_value(*command, "inputs", arguments->words, "FILE|FOLDER|-|KEY=VALUE",
            "JPEG or PNG files, folders of them in any depth; for models of texts, files with "
            "one sample per line; -: paths or lines from standard input; key=value sets a key");
  add_number(*command, "--top-k", arguments->top_k, at_least(1),
             "number of classes per input, most probable first");
  add_value(*command, "--save-images", arguments->images, "FOLDER",
            "write images restored by a denoiser to this new folder, as PNG files");
  add_model_override(*command, arguments->checkpoint.override_model);
  command->add_flag("--json", arguments->json, "one line of JSON per input");
  command->footer(
      "Inputs that cannot be read are reported and skipped; the exit code is then 13.\n" +
      examples("  shoal predict runs/quickstart photograph.jpg --top-k 3\n"
               "  shoal predict runs/vit --best photographs --json > labels.jsonl\n"
               "  find . -name '*.png' | shoal predict runs/vit -\n"
               "  shoal predict runs/reviews reviews.txt\n"
               "  shoal predict runs/denoise noisy --save-images restored"));
  command->callback(
      [&code, arguments] { code = predict(*arguments, environment_variable, std::cout); });
}

void add_report(CLI::App& app, ExitCode& code) {
  CLI::App* command = app.add_subcommand(
      "report", "Write the report of a run, or a comparison of several: report.html");
  const auto arguments = std::make_shared<ReportArguments>();
  add_value(*command, "runs", arguments->runs, "RUN",
            "runs, finished or in progress, or folders of runs")
      ->required();
  add_value(*command, "--out", arguments->out, "FILE.html",
            "page to write or replace; default: report.html in the folder of the run; for "
            "several runs, comparison.html in the folder that contains them")
      ->check(must_be_html());
  command->add_flag("--json", arguments->json, "print the data of the page instead of writing it");
  command->footer(
      "Training writes the same page when it ends. It works offline; without scripts, it shows "
      "only\n"
      "its tables.\n" +
      examples("  shoal report runs/quickstart\n"
               "  shoal report runs/a runs/b --out comparison.html\n"
               "  shoal report runs"));
  command->callback([&code, arguments] { code = report(*arguments, std::cout); });
}

void add_prepare(CLI::App& data, ExitCode& code) {
  CLI::App* command = data.add_subcommand(
      "prepare", "Verify and unpack a published data set, or print where to download it");
  const auto arguments = std::make_shared<PrepareArguments>();
  offer_values(*command->add_option("name", arguments->name, "data set")->required(), {"cifar10"});
  add_value(*command, "given", arguments->given, "ARCHIVE|FOLDER",
            "the archive, or its unpacked folder; without it, print where to download it");
  add_value(*command, "--out", arguments->out, "DIR", "folder to unpack the archive to")
      ->capture_default_str();
  command->footer(
      "Shoal downloads nothing.\n" +
      examples("  shoal data prepare cifar10\n"
               "  shoal data prepare cifar10 cifar-10-binary.tar.gz --out /data/cifar10"));
  command->callback([&code, arguments] { code = prepare(*arguments, std::cout); });
}

void add_split(CLI::App& data, ExitCode& code) {
  CLI::App* command =
      data.add_subcommand("split", "Split class folders into train/ and val/ by creating links");
  const auto arguments = std::make_shared<SplitArguments>();
  add_value(*command, "folder", arguments->folder, "FOLDER", "its subfolders are the classes")
      ->required();
  command
      ->add_option("--valid", arguments->valid_percent,
                   "fraction of each class for val/, at least one file")
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
  add_value(*command, "--out", arguments->out, "DIR", "folder to create; default: FOLDER_split");
  add_number(*command, "--seed", arguments->seed, at_least(0), "seed of the random selection");
  command->footer(
      "Links are hard links, or symbolic links across disks; FOLDER does not change.\n" +
      examples("  shoal data split photographs --valid 10% --out /data/photographs"));
  command->callback([&code, arguments] { code = split(*arguments, std::cout); });
}

}  // namespace shoal
