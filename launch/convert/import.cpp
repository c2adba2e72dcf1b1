#include "launch/convert/import.h"

#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <set>

#include "launch/data/open_split.h"
#include "launch/data/recipe_source.h"
#include "launch/job/print_result.h"
#include "launch/model/build_model.h"
#include "launch/recipe/other_data.h"
#include "launch/recipe/recipe.h"
#include "launch/weights/open_checkpoint.h"
#include "models/formats/own_layout.h"
#include "models/formats/weight_format.h"
#include "parallel/checkpoint/state_list.h"
#include "runtime/base/build_info.h"
#include "runtime/base/text.h"
#include "runtime/files/file_system.h"
#include "runtime/files/new_folder.h"
#include "runtime/options/config_writer.h"

// V rows of an embedding
namespace shoal {
namespace {

/// Makes a format by name; null for Shoal's own layout.
std::shared_ptr<WeightFormat> make_format(const std::string& name) {
  if (name == kOwnLayout) return nullptr;
  if (members_of<WeightFormat>().find(name) == nullptr) {
    refuse_unknown("--as: unknown format", name, import_formats());
  }
  return Registry<WeightFormat>::create(Choice<WeightFormat>(name), {});
}

/// True if an override sets this key, or a section that contains it.
bool sets(const std::vector<std::string>& overrides, const std::string& key) {
  return std::ranges::any_of(overrides, [&](const std::string& override) {
    const size_t end = override.find('=');
    const std::string given = override.substr(0, end) + ".";
    return end != override.npos && (key + ".").starts_with(given);
  });
}

bool is_float(Dtype dtype) { return at::isFloatingType(scalar_type(dtype)); }

bool are_all_float64(const ForeignWeights& weights) {
  return std::ranges::all_of(weights.tensors(), [](const auto& item) {
    return item.second.dtype == Dtype::kF64 || !is_float(item.second.dtype);
  });
}

/// The recipe derived from the weights, as far as the user's overrides leave it.
Recipe recipe_of(const ModelRecipe& model, const ForeignWeights& weights,
                 const std::vector<std::string>& overrides) {
  const bool has_other_data = sets(overrides, "data.source");
  Mistakes missing;
  for (const auto& [key, why] : model.required_keys) {
    if (sets(overrides, key) || (has_other_data && key.starts_with("data."))) continue;
    missing.add(fmt::format("{}: {}", key, why));
  }
  missing.throw_if_any(
      fmt::format("'{}' does not tell, and the command line has to:", weights.path()),
      "append " + (model.required_keys.empty() ? "" : model.required_keys.front().key) + "=…");
  Recipe recipe;
  recipe.model.backbone = model.backbone;
  recipe.task = model.task;
  recipe.data.source = model.data;
  recipe.train.duration = Duration::epochs(1);
  recipe.train.batch = recipe.train.group;
  if (are_all_float64(weights)) recipe.train.precision = Precision::kFloat64;
  return recipe;
}

void refuse_low_rank(const ForeignWeights& weights) {
  for (const auto& [name, tensor] : weights.tensors()) {
    if (name.find(".low_rank.") == name.npos) continue;
    throw Error(ExitCode::kMismatch,
                fmt::format("'{}': '{}' is part of a product of low rank beside a mask, which no "
                            "dense model has",
                            weights.path(), name),
                "use the checkpoint that was exported");
  }
}

/// The recipe in the metadata, made dense: exported weights include masks and permutations.
Recipe own_recipe(const WeightOrigin& origin, const ForeignWeights& weights,
                  const std::string& name) {
  refuse_low_rank(weights);
  Recipe recipe =
      config::load_options_text<Recipe>(origin.recipe, name, {}, config::UnsetVariable::kKeep)
          .options;
  recipe.sparsity.reset();
  recipe.model.init_from.reset();
  recipe.model.upcycle = false;
  return recipe;
}

void check_described_model(const WeightFormat& format, const Recipe& recipe) {
  Mistakes mistakes;
  if (recipe.model.backbone.name() != format.backbone()) {
    mistakes.add(fmt::format("model.backbone: {}, the weights are those of {}",
                             recipe.model.backbone.name(), format.backbone()));
  } else {
    format.check(recipe.model.backbone, mistakes);
  }
  if (recipe.task.name() != format.task()) {
    mistakes.add(fmt::format("task.name: {}, the weights are those of {}", recipe.task.name(),
                             format.task()));
  }
  mistakes.throw_if_any("the weights do not fit the recipe:");
}

/// Kind and origin of the weights, as far as the file tells.
struct Described {
  Recipe recipe;
  std::vector<ModelRecipe::Key> assumed_keys = {};
  std::string tokenizer = {};  ///< Tokenizer::identity(); empty where the file names none
};

/// `format`: null for Shoal's own layout.
Described describe_weights(const WeightFormat* format, const ForeignWeights& weights,
                           const ImportArguments& arguments, const Environment& environment) {
  const std::string name = fmt::format("{} (its recipe)", weights.path());
  const auto load = [&](const Recipe& told) {
    Recipe recipe = read_changed(told, {name, arguments.overrides, environment}).loaded.options;
    find_classes(recipe);
    return recipe;
  };
  if (format == nullptr) {
    const WeightOrigin origin = origin_of(weights);
    return {load(own_recipe(origin, weights, name)), {}, origin.tokenizer};
  }
  const ModelRecipe told = format->recipe(weights);
  Described described{load(recipe_of(told, weights, arguments.overrides)), told.assumed_keys};
  check_described_model(*format, described.recipe);
  return described;
}

/// The tensor to read into one weight.
struct Source {
  const WeightName* name;
  const ForeignWeights::Tensor* tensor;
};

/// Finds a stored tensor for each weight of the model, by its name in Shoal. Throws Error (exit 12)
/// that lists all mismatches. `ignored`: WeightFormat::ignored.
std::map<std::string, Source> match(const std::vector<std::string>& ignored,
                                    const std::vector<WeightName>& names, const StateList& model,
                                    const ForeignWeights& weights) {
  Mistakes mistakes;
  std::map<std::string, Source> sources;
  std::set<std::string, std::less<>> used;
  for (const WeightName& name : names) {
    used.insert(name.theirs);
    const std::vector<int64_t> expected = name.shape_of_theirs(model.find(name.ours).entry.shape);
    const ForeignWeights::Tensor* tensor = weights.find(name.theirs);
    if (tensor == nullptr) {
      if (!name.is_copy) {
        mistakes.add(
            fmt::format("'{}' is missing, expected [{}]", name.theirs, fmt::join(expected, ", ")));
      }
    } else if (tensor->shape != expected || !is_float(tensor->dtype)) {
      mistakes.add(fmt::format("'{}' is {}, expected numbers [{}]", tensor->stored_name,
                               describe_tensor(tensor->dtype, tensor->shape),
                               fmt::join(expected, ", ")));
    } else if (!name.is_copy) {
      sources[name.ours] = {&name, tensor};
    }
  }
  for (const auto& [name, tensor] : weights.tensors()) {
    if (used.contains(name)) continue;
    if (std::ranges::any_of(ignored, [&](const auto& glob) { return matches_glob(name, glob); })) {
      continue;
    }
    mistakes.add(fmt::format("'{}' {} is surplus: the model has no place for it",
                             tensor.stored_name, describe_tensor(tensor.dtype, tensor.shape)));
  }
  mistakes.throw_if_any(
      fmt::format("'{}' does not hold the weights of the model:", weights.path()));
  return sources;
}

ModelWeights read_weights(const std::map<std::string, Source>& sources, const StateList& model,
                          const ForeignWeights& weights) {
  ModelWeights read;
  for (const StateEntry& item : model.tensors) {
    const Source& source = sources.at(item.entry.name);
    const torch::Tensor value = source.name->to_ours(weights.read(*source.tensor), item.entry.shape,
                                                     scalar_type(item.entry.dtype));
    if (!value.isfinite().all().item<bool>()) {
      throw CheckpointError(fmt::format("'{}': the tensor '{}' has values that are not finite",
                                        weights.path(), source.tensor->stored_name));
    }
    read.list.push_back({item.entry.name, value, 0, {}, {}});
  }
  return read;
}

/// Throws Error (exit 12) unless stored duplicates of weights equal the weights.
void check_copies(const std::vector<WeightName>& names,
                  const std::map<std::string, Source>& sources, const ForeignWeights& weights) {
  Mistakes mistakes;
  for (const WeightName& name : names) {
    const ForeignWeights::Tensor* copy = name.is_copy ? weights.find(name.theirs) : nullptr;
    if (copy == nullptr) continue;
    const ForeignWeights::Tensor& weight = *sources.at(name.ours).tensor;
    if (at::equal(weights.read(*copy), weights.read(weight).to(scalar_type(copy->dtype)))) continue;
    mistakes.add(fmt::format("'{}' differs from '{}', with which the model shares its values",
                             copy->stored_name, weight.stored_name));
  }
  mistakes.throw_if_any(fmt::format("'{}' is not supported:", weights.path()));
}

}  // namespace

void ModelRun::visit_state(StateVisitor& visitor) {
  weights.visit_state(visitor);
  if (!tokenizer.empty()) visitor.text(kDataTokenizer, tokenizer);
}

void write_model_run(const Recipe& recipe, ModelRun& run, const std::string& folder) {
  PosixFileSystem files;
  const auto world = make_self_communicator();
  CheckpointWriter::Options options;
  options.folder = folder + "/ckpt";
  options.run_id = run.id;
  options.recipe = config::canonical_text(recipe);
  options.written_by = run.origin;
  options.written_by["shoal"] = build_info().version + " " + build_info().git_revision;
  const SaveOutcome saved = CheckpointWriter(options, *world, files).save(run, run.point);
  if (!saved.ok) throw StorageError(saved.error);
  replace_file(files, folder + "/resolved.yaml", options.recipe);
}

std::vector<std::string> import_formats() {
  std::vector<std::string> formats = members_of<WeightFormat>().names();
  formats.emplace_back(kOwnLayout);
  std::ranges::sort(formats);
  return formats;
}

ExitCode import_weights(const ImportArguments& arguments, const Environment& environment,
                        std::ostream& out) {
  const auto format = make_format(arguments.format);
  NewFolder folder(arguments.out);
  ForeignWeights weights(arguments.path);
  if (format && !format->prefix().empty()) weights.strip(format->prefix());
  const Described described = describe_weights(format.get(), weights, arguments, environment);
  const Recipe& recipe = described.recipe;
  const auto source = make_source(recipe);
  const DataShape data = source->shape();
  const BuiltModel model = build_model(recipe, data);
  ModelWeights listed = weights_of(model);
  const StateList wanted = list_state(listed);
  const std::vector<WeightName> names =
      format ? format->names(recipe.model.backbone, recipe.task, data) : own_names(wanted);
  require_all_named(names, wanted);
  const std::map<std::string, Source> sources =
      match(format ? format->ignored() : std::vector<std::string>{}, names, wanted, weights);
  check_copies(names, sources, weights);
  ModelRun run;
  run.id = "import-" + arguments.format;
  run.origin = {{kImportedAs, arguments.format}};
  run.weights = read_weights(sources, wanted, weights);
  run.tokenizer = described.tokenizer;
  std::string why_unknown;
  try {
    const auto tokenizer = run.tokenizer.empty() ? source->tokenizer() : nullptr;
    if (tokenizer) run.tokenizer = tokenizer->identity();
  } catch (const DataError& error) {
    why_unknown = error.what();  // weights can be imported before the tokenizer's files are there
  }
  write_model_run(recipe, run, folder.working_path());
  folder.commit();
  const int64_t parameters = count_elements(model.parameters);
  print_result(out, arguments.json,
               {{"path", arguments.out},
                {"format", arguments.format},
                {"backbone", recipe.model.backbone.name()},
                {"tensors", sources.size()},
                {"parameters", parameters}},
               fmt::format("{}: {}, {} parameters, from {}\n", arguments.out,
                           recipe.model.backbone.name(), parameters, arguments.path));
  for (const auto& [key, why] : described.assumed_keys) {
    if (!sets(arguments.overrides, key)) std::cerr << fmt::format("note: {}: {}\n", key, why);
  }
  if (!why_unknown.empty()) {
    std::cerr << fmt::format(
        "note: the checkpoint does not record its tokenizer, so that no command can check its "
        "own: {}\n",
        why_unknown);
  }
  return ExitCode::kOk;
}

}  // namespace shoal
