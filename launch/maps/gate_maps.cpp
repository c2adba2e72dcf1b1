#include "launch/maps/gate_maps.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "launch/data/recipe_source.h"
#include "launch/maps/gate_page.h"
#include "launch/predict/prompt.h"
#include "launch/step/session.h"
#include "launch/weights/load_weights.h"
#include "models/causal_backbone.h"
#include "models/hspmn/token_gate.h"
#include "runtime/base/json_text.h"
#include "runtime/base/text.h"
#include "runtime/data/loader/loader.h"
#include "runtime/files/file_system.h"

// b samples of a batch  S tokens
namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

/// A trained model with token gates.
struct GatedModel {
  OpenedCheckpoint checkpoint;
  std::shared_ptr<const DataSource> source;
  BuiltModel model;
  std::vector<std::shared_ptr<Backbone>> backbones;
  std::vector<const TokenGateImpl*> gates = {};  ///< in forward order

  GatedModel(const CheckpointChoice& choice, const Environment& environment)
      : checkpoint(open_checkpoint_alone(choice, environment)),
        source(make_source(checkpoint.recipe, environment)),
        model(build_model(checkpoint.recipe, source->shape(), {&checkpoint.grid, torch::kCPU})),
        backbones(backbones_of(*model.task)) {
    for (const auto& module : model.task->modules()) {
      const auto* gate = dynamic_cast<const TokenGateImpl*>(module.get());
      if (gate != nullptr) gates.push_back(gate);
    }
    if (gates.empty()) {
      throw Error(ExitCode::kUsage,
                  fmt::format("the model of '{}' has no token gates to draw", checkpoint.path),
                  "name a checkpoint of model.backbone hspmn with model.contextual sparse");
    }
    load_model(checkpoint, model);
  }
  int64_t context() const {
    int64_t most = source->shape().sequence;
    for (const auto& backbone : backbones) {
      const auto* causal = dynamic_cast<const CausalBackbone*>(backbone.get());
      if (causal != nullptr) most = std::max(most, causal->context_length());
    }
    return most;
  }
};

/// The first `count` values of a row, as bools.
std::vector<bool> bools_of(const torch::Tensor& value_S, int64_t count) {
  const torch::Tensor host = value_S.narrow(0, 0, count).contiguous();
  const bool* values = host.const_data_ptr<bool>();
  return std::vector<bool>(values, values + count);
}

/// Runs the gates on the first `wanted` samples. `has_labels`: some tokens have labels, others not.
std::vector<GatedSample> run_gates(const GatedModel& opened, const Batch& batch, int64_t wanted,
                                   bool has_labels) {
  std::vector<torch::Tensor> is_open_bS;
  for (const auto& backbone : opened.backbones) {
    std::ranges::move(backbone->forward(input_of(batch), batch.context).is_open_bS,
                      std::back_inserter(is_open_bS));
  }
  TORCH_CHECK(is_open_bS.size() == opened.gates.size(), "the model has ", opened.gates.size(),
              " token gates, its output is of ", is_open_bS.size());
  std::vector<GatedSample> samples;
  for (int64_t i = 0; i < wanted; ++i) {
    const int64_t count =
        batch.length_b.defined() ? batch.length_b[i].item<int64_t>() : batch.token_bS.size(1);
    const torch::Tensor token_S = batch.token_bS[i].narrow(0, 0, count).contiguous();
    const int64_t* ids = token_S.const_data_ptr<int64_t>();
    GatedSample sample{"", {ids, ids + count}, {}, {}};
    if (has_labels) sample.is_labelled = bools_of(batch.token_label_bS[i] != kNoLabel, count);
    for (const torch::Tensor& gate_bS : is_open_bS) {
      sample.is_open.push_back(bools_of(gate_bS[i], count));
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

/// The first ones of the validation split.
std::vector<GatedSample> validation_samples(const GatedModel& opened, int64_t num_samples) {
  const OpenSplit data = open_split(opened.source, Split::kValid);
  const DataShape shape = opened.source->shape();
  const bool has_labels = shape.token_labels > 0 && shape.token_labels < shape.sequence;
  EvalLoader loader(*data.samples,
                    loader_settings(opened.checkpoint.recipe, data, opened.checkpoint.grid));
  std::vector<GatedSample> samples;
  while (std::ssize(samples) < num_samples) {
    const std::optional<Batch> batch = loader.next();
    if (!batch) break;
    const int64_t wanted = std::min(batch->token_bS.size(0), num_samples - std::ssize(samples));
    for (GatedSample& sample : run_gates(opened, *batch, wanted, has_labels)) {
      sample.name = fmt::format("Validation sample {}", samples.size());
      samples.push_back(std::move(sample));
    }
  }
  return samples;
}

std::vector<GatedSample> prompt_sample(const GatedModel& opened, const std::string& text,
                                       const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) {
    const DataShape shape = opened.source->shape();
    throw Error(ExitCode::kUsage,
                fmt::format("--prompt: needs a model of text, data.source {} gives {}",
                            shape.source, shape.text()),
                "leave --prompt out, which draws validation samples");
  }
  require_own_tokenizer(opened.checkpoint.manifest, tokenizer->identity());
  Batch batch;
  batch.token_bS =
      torch::tensor(encode_prompt("--prompt", text, *tokenizer, opened.context()), torch::kInt64)
          .unsqueeze(0);
  batch.context.seed = static_cast<uint64_t>(opened.checkpoint.recipe.run.seed);
  batch.context.sample_b = torch::zeros({1}, torch::kInt64);
  batch.context.samples_per_group = 1;
  batch.context.samples_in_step = batch.context.samples_in_micro = 1;
  std::vector<GatedSample> samples = run_gates(opened, batch, 1, /*has_labels=*/false);
  samples[0].name = "Prompt";
  return samples;
}

Json numbers_json(const std::string& layer, const GateNumbers& numbers) {
  Json bins = Json::array();
  for (const auto& share : numbers.rate_by_position) bins.push_back(or_null<Json>(share));
  return {{"layer", layer},
          {"rate", numbers.rate},
          {"recall", or_null<Json>(numbers.labelled_rate)},
          {"token_information", numbers.token_information},
          {"label_information", or_null<Json>(numbers.label_information)},
          {"rate_by_position", bins}};
}

std::string gate_table(const Json& drawn) {
  const auto cell = [](const Json& value) {
    return value.is_null() ? "-" : fmt::format("{:.4f}", value.get<double>());
  };
  std::vector<std::vector<std::string>> rows{
      {"token gate", "attending", "of labelled tokens", "I(gate; token id)", "I(gate; labelled)"}};
  for (const Json& layer : drawn["layers"]) {
    rows.push_back({layer["layer"].get<std::string>(), cell(layer["rate"]), cell(layer["recall"]),
                    cell(layer["token_information"]), cell(layer["label_information"])});
  }
  const auto extent = [&](const char* tokens, const char* samples) {
    return counted(drawn[tokens].get<int64_t>(), "token") + " of " +
           counted(drawn[samples].get<int64_t>(), "sample");
  };
  return fmt::format(
      "{}, step {}, {}; I is mutual information in nats\n{}\npage: {}, the first {}\n",
      drawn["checkpoint"].get<std::string>(), drawn["step"].get<int64_t>(),
      extent("tokens", "samples"), text_table(rows), drawn["page"].get<std::string>(),
      extent("drawn_tokens", "drawn_samples"));
}

/// Throws StorageError if the page cannot be written, before the model runs for long.
void require_writable(FileSystem& files, const std::string& path) {
  const std::string temporary = path + ".tmp";
  OutputFile(files, temporary, FileSystem::Mode::kReplace).close();
  remove_path(files, temporary);
}

}  // namespace

ExitCode draw_gate_maps(const GateMapsArguments& arguments, const Environment& environment,
                        std::ostream& out) {
  const torch::NoGradGuard no_grad;
  PosixFileSystem files;
  require_writable(files, arguments.file);
  const GatedModel opened(arguments.checkpoint, environment);
  const auto tokenizer = opened.source->tokenizer();
  GateMaps maps;
  maps.title = fmt::format("Attending tokens at step {}", opened.checkpoint.manifest.step);
  maps.tokenizer = tokenizer.get();
  maps.samples = arguments.prompt ? prompt_sample(opened, *arguments.prompt, tokenizer.get())
                                  : validation_samples(opened, arguments.samples);
  Json layers = Json::array();
  for (size_t gate = 0; gate < opened.gates.size(); ++gate) {
    maps.layers.push_back(opened.gates[gate]->path());
    maps.numbers.push_back(gate_numbers(maps.samples, gate, opened.context()));
    layers.push_back(numbers_json(maps.layers[gate], maps.numbers[gate]));
  }
  replace_file(files, arguments.file, gate_page(maps).html());
  const SampleExtent all = first_tokens(maps.samples);
  const SampleExtent shown = first_tokens(maps.samples, kMostDrawnTokens);
  const Json drawn{{"checkpoint", opened.checkpoint.path},
                   {"step", opened.checkpoint.manifest.step},
                   {"page", arguments.file},
                   {"samples", all.samples},
                   {"tokens", all.tokens},
                   {"drawn_samples", shown.samples},
                   {"drawn_tokens", shown.tokens},
                   {"layers", layers}};
  out << (arguments.json ? json_text(drawn) + "\n" : gate_table(drawn));
  return ExitCode::kOk;
}

}  // namespace shoal
