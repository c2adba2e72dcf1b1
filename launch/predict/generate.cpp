#include "launch/predict/generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "launch/data/recipe_source.h"
#include "launch/job/failure.h"
#include "launch/predict/prompt.h"
#include "models/text_generation.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/json_text.h"

namespace shoal {
namespace {

using Json = nlohmann::ordered_json;
using Tokens = std::vector<int64_t>;

std::string read_prompt(const std::string& file) {
  const std::shared_ptr<std::istream> stream = open_input(file);
  std::string text;
  for (char byte = 0; stream->get(byte);) text += byte;
  if (!has_read_error(*stream)) return text;
  throw DataError(fmt::format("--prompt-file {}: cannot be read", file));
}

std::vector<std::string> read_prompts(const GenerateArguments& arguments) {
  std::vector<std::string> texts = arguments.prompts;
  for (const std::string& file : arguments.prompt_files) texts.push_back(read_prompt(file));
  if (texts.empty()) {
    throw Error(ExitCode::kUsage, "no prompt is given", "add --prompt TEXT or --prompt-file FILE");
  }
  return texts;
}

/// Name of a prompt for messages: "--prompt 2", "--prompt-file FILE".
std::string name_of_prompt(const GenerateArguments& arguments, size_t index) {
  const size_t given = arguments.prompts.size();
  return index < given ? fmt::format("--prompt {}", index + 1)
                       : "--prompt-file " + arguments.prompt_files[index - given];
}

/// Input that rank 0 reads for all ranks.
struct Input {
  std::vector<std::string> texts;              ///< on rank 0 only
  std::shared_ptr<const Tokenizer> tokenizer;  ///< on rank 0 only
  std::vector<Tokens> prompts;                 ///< one for each text to generate
  int64_t end_of_text = -1;
};

/// Reads the input on rank 0 and broadcasts it. Collective.
Input read_input(const GenerateArguments& arguments, const OpenedCheckpoint& opened,
                 const DataSource& source, int64_t context) {
  Communicator& world = *opened.grid.world;
  Input input;
  const std::string encoded = on_rank_zero(world, [&] {
    input.tokenizer = text_tokenizer(opened, source);
    input.texts = read_prompts(arguments);
    Json json{{"end_of_text", input.tokenizer->end_of_text()}, {"prompts", Json::array()}};
    for (size_t i = 0; i < input.texts.size(); ++i) {
      json["prompts"].push_back(encode_prompt(name_of_prompt(arguments, i), input.texts[i],
                                              *input.tokenizer, /*most=*/context - 1));
    }
    return json.dump();
  });
  const Json json = Json::parse(encoded);
  input.end_of_text = json["end_of_text"];
  for (const Json& prompt : json["prompts"]) {
    input.prompts.insert(input.prompts.end(), static_cast<size_t>(arguments.samples),
                         prompt.get<Tokens>());
  }
  return input;
}

void print(const GenerateArguments& arguments, const Input& input, const OpenedCheckpoint& opened,
           const std::vector<GeneratedText>& texts, std::ostream& out) {
  const auto prompt_of = [&](size_t i) {
    return input.texts[i / static_cast<size_t>(arguments.samples)];
  };
  if (arguments.json) {
    Json list = Json::array();
    for (size_t i = 0; i < texts.size(); ++i) {
      list.push_back({{"prompt", prompt_of(i)},
                      {"text", input.tokenizer->decode(texts[i].tokens)},
                      {"tokens", texts[i].tokens},
                      {"stop", std::string(enum_name(texts[i].stop))}});
    }
    Json json = list.size() == 1 ? list.front() : Json{{"sequences", list}};
    json["step"] = opened.manifest.step;
    json["checkpoint"] = opened.path;
    out << json_text(json) << '\n' << std::flush;
    return;
  }
  if (texts.size() == 1) return;  // printed while it was generated
  for (size_t i = 0; i < texts.size(); ++i) {
    out << prompt_of(i) << input.tokenizer->decode(texts[i].tokens) << "\n---------------\n";
  }
  out << std::flush;
}

void note_full_context(const std::vector<GeneratedText>& texts, int64_t context) {
  if (std::ranges::find(texts, StopReason::kContext, &GeneratedText::stop) == texts.end()) return;
  std::cerr << fmt::format(
      "note: a text ends where it fills the model's context of {} tokens, the prompt's included\n",
      context);
}

void generate_on_ranks(const GenerateArguments& arguments, const LaunchInfo& launch,
                       const Environment& environment, Communicator& guard, std::ostream& out) {
  OpenedCheckpoint opened = open_checkpoint(arguments.checkpoint, launch, environment, guard);
  const Recipe& recipe = opened.recipe;
  Communicator& world = *opened.grid.world;
  const auto source = make_source(recipe, environment);
  const BuiltModel built = build_model(recipe, source->shape(), {&opened.grid, opened.grid.device});
  TextModel& model = text_model_of(built, recipe);
  const int64_t context = model.text_backbone().context_length();
  const Input input = read_input(arguments, opened, *source, context);
  load_model(opened, built);
  const auto model_seed = static_cast<uint64_t>(recipe.run.seed);
  const GenerationOptions options{
      arguments.sampling,
      arguments.tokens,
      arguments.batch,
      input.end_of_text,
      arguments.seed ? static_cast<uint64_t>(*arguments.seed) : model_seed,
      model_seed};
  // A single text is printed while it is generated.
  const bool is_printed = world.rank() == 0 && !arguments.json && input.prompts.size() == 1;
  OnToken on_token;
  if (is_printed) {
    out << input.texts.front() << std::flush;
    on_token = [&](int64_t, int64_t id) { out << input.tokenizer->bytes_of(id) << std::flush; };
  }
  const std::vector<GeneratedText> texts =
      generate_text(model, input.prompts, options, opened.grid, on_token);
  if (is_printed) out << '\n' << std::flush;
  if (world.rank() != 0) return;
  print(arguments, input, opened, texts, out);
  note_full_context(texts, context);
}

}  // namespace

ExitCode generate(const GenerateArguments& arguments, const Environment& environment,
                  std::ostream& out) {
  if (std::ranges::count(arguments.checkpoint.overrides, "-") > 0) {
    throw Error(ExitCode::kUsage, "generate: '-' is neither key=value nor ~key",
                "standard input is read by --prompt-file -, or by one process without any prompt");
  }
  const LaunchInfo launch = read_launch_info(environment);
  const std::unique_ptr<Communicator> world = make_world(launch);
  GenerateArguments own = arguments;
  // Under mpirun a terminal looks like a pipe, whose end would be waited for.
  const bool is_piped = launch.launcher.empty() && ::isatty(STDIN_FILENO) == 0;
  if (own.prompts.empty() && own.prompt_files.empty() && is_piped) own.prompt_files = {"-"};
  return run_on_ranks(*world, [&] {
    generate_on_ranks(own, launch, environment, *world, out);
    return ExitCode::kOk;
  });
}

}  // namespace shoal
