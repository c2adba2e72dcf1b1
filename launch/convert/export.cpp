#include "launch/convert/export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>

#include "launch/convert/folded_weights.h"
#include "launch/data/open_split.h"
#include "launch/data/recipe_source.h"
#include "launch/job/print_result.h"
#include "launch/model/build_model.h"
#include "launch/recipe/recipe.h"
#include "launch/weights/load_weights.h"
#include "models/formats/own_layout.h"
#include "models/formats/weight_format.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "runtime/base/build_info.h"
#include "runtime/base/json_text.h"
#include "runtime/base/text.h"
#include "runtime/files/file_system.h"
#include "runtime/files/new_folder.h"
#include "runtime/options/config_writer.h"

namespace shoal {
namespace {

constexpr std::array kExportedDtypes{
    std::pair{Dtype::kF32, "float32"}, std::pair{Dtype::kF64, "float64"},
    std::pair{Dtype::kBF16, "bfloat16"}, std::pair{Dtype::kF16, "float16"}};

/// Metadata that Hugging Face's and timm's readers expect in a file.
const std::map<std::string, std::string> kMetadata{{"format", "pt"}};

/// Hint for a model that the program has no format for: Shoal's own layout.
std::string or_own_layout(const std::string& advice) {
  return fmt::format("{}, or --to {}", advice, kOwnLayout);
}

/// Parses the dtype to write; nullopt: the dtype of each tensor.
std::optional<Dtype> dtype_named(const std::string& name) {
  if (name.empty()) return std::nullopt;
  std::vector<std::string> names;
  for (const auto& [dtype, known] : kExportedDtypes) {
    if (name == known) return dtype;
    names.emplace_back(known);
  }
  refuse_unknown("--dtype: unknown", name, names);
}

std::string_view name_of_exported(Dtype dtype) {
  for (const auto& [exported, name] : kExportedDtypes) {
    if (exported == dtype) return name;
  }
  throw std::logic_error("a dtype that is not exported");
}

std::vector<std::shared_ptr<WeightFormat>> all_formats() {
  std::vector<std::shared_ptr<WeightFormat>> formats;
  for (const std::string& name : members_of<WeightFormat>().names()) {
    formats.push_back(Registry<WeightFormat>::create(Choice<WeightFormat>(name), {}));
  }
  return formats;
}

std::string kind_of_model(std::string_view backbone, std::string_view task) {
  return fmt::format("{} with the task {}", backbone, task);
}

/// The program's format for a backbone with a task; null for Shoal's own layout. Throws Error: exit
/// 2 for an unknown program, 12 if it has none.
std::shared_ptr<WeightFormat> find_format(const std::string& program, const Recipe& recipe) {
  if (program == kOwnLayout) return nullptr;
  const std::string wanted = kind_of_model(recipe.model.backbone.name(), recipe.task.name());
  std::vector<std::string> known;
  for (const auto& format : all_formats()) {
    if (format->program() != program) continue;
    known.push_back(kind_of_model(format->backbone(), format->task()));
    if (known.back() == wanted) return format;
  }
  if (known.empty()) refuse_unknown("--to: unknown program", program, export_programs());
  throw Error(ExitCode::kMismatch,
              fmt::format("--to {}: it has no layout for the backbone {}, only for {}", program,
                          wanted, join_words(known)),
              or_own_layout("export such a model"));
}

void check_exportable(const WeightFormat& format, const ModelToExport& model,
                      const std::string& path) {
  const std::string head = fmt::format("'{}' cannot be exported:", path);
  Mistakes mistakes;
  const std::string hint = or_own_layout("train it without these options");
  format.check(model.backbone, mistakes);
  mistakes.throw_if_any(head, hint);
  format.check_export(model, mistakes);
  mistakes.throw_if_any(head, hint);
}

/// A weight of the checkpoint, and the entry of the file that stores it.
struct Export {
  const WeightName* name;
  const ManifestTensor* ours;
  SafetensorsEntry entry;
};

/// By their names. Throws Error (exit 12) if the checkpoint does not hold the weights of `model`.
std::vector<Export> plan_export(const std::vector<WeightName>& names, std::string_view prefix,
                                const StateList& model, const CheckpointReader& reader,
                                const ExportArguments& arguments) {
  const std::optional<Dtype> dtype = dtype_named(arguments.dtype);
  const Manifest& manifest = reader.manifest();
  Mistakes mistakes;
  std::vector<Export> exports;
  for (const WeightName& name : names) {
    if (name.is_copy) continue;
    const ManifestTensor* ours = manifest.find_tensor(
        arguments.checkpoint.raw_weights ? name.ours : averaged_name(manifest, name.ours));
    const std::vector<int64_t>& shape = model.find(name.ours).entry.shape;
    if (ours == nullptr || ours->shape != shape) {
      mistakes.add(
          fmt::format("'{}' is {}, expected [{}]", name.ours,
                      ours == nullptr ? "missing" : describe_tensor(ours->dtype, ours->shape),
                      fmt::join(shape, ", ")));
      continue;
    }
    exports.push_back({&name,
                       ours,
                       {(name.has_prefix ? std::string(prefix) : "") + name.theirs,
                        dtype.value_or(ours->dtype), name.shape_of_theirs(shape), 0, 0}});
  }
  mistakes.throw_if_any(
      fmt::format("'{}' does not hold the weights of its recipe's model:", reader.path()));
  std::ranges::sort(exports, {}, [](const Export& item) { return item.entry.name; });
  return exports;
}

/// Writes the file, holding one tensor in memory at a time.
void write_safetensors(const std::vector<Export>& exports, const FoldedWeights& weights,
                       const std::map<std::string, std::string>& metadata,
                       const std::string& path) {
  std::vector<SafetensorsEntry> entries;
  for (const Export& item : exports) entries.push_back(item.entry);
  PosixFileSystem files;
  OutputFile file(files, path, FileSystem::Mode::kCreate);
  file.write(emit_safetensors_header(entries, metadata));
  for (const Export& item : exports) {
    const torch::Tensor theirs = item.name->to_theirs(weights.read(*item.ours, item.name->ours),
                                                      scalar_type(item.entry.dtype));
    file.write({static_cast<const char*>(theirs.const_data_ptr()), theirs.nbytes()});
  }
  file.sync();
  file.close();
}

/// A recipe's tree as JSON: numbers, booleans and nulls as such, other values as text.
nlohmann::ordered_json to_json(const config::Node& node) {
  using Kind = config::Node::Kind;
  if (node.kind == Kind::kNull) return nullptr;
  if (node.kind == Kind::kScalar) {
    const auto value =
        nlohmann::ordered_json::parse(node.text, nullptr, /*allow_exceptions=*/false);
    const bool is_text = node.is_quoted || !(value.is_number() || value.is_boolean());
    return is_text ? nlohmann::ordered_json(node.text) : value;
  }
  const bool is_list = node.kind == Kind::kList;
  auto json = is_list ? nlohmann::ordered_json::array() : nlohmann::ordered_json::object();
  for (const config::Node& item : node.items) json.push_back(to_json(item));
  for (const config::Entry& entry : node.entries) json[entry.key] = to_json(entry.value);
  return json;
}

/// Text of recipe.json, from which launch/python/shoal builds a model and its preprocessing.
std::string describe_model(const Recipe& recipe, const DataSource& source) {
  const DataShape shape = source.shape();
  nlohmann::ordered_json samples{{"image", nullptr},
                                 {"sequence", shape.sequence},
                                 {"vocabulary", shape.vocabulary},
                                 {"classes", source.class_names()}};
  if (shape.image)
    samples["image"] = {shape.image->channels, shape.image->height, shape.image->width};
  if (const auto transform = source.image_transform()) {
    samples["mean"] = transform->stats.mean;
    samples["std"] = transform->stats.std;
  }
  return json_text(nlohmann::ordered_json{{"recipe", to_json(config::to_node(recipe))},
                                          {"samples", std::move(samples)}},
                   2) +
         "\n";
}

WeightOrigin origin_of(const Manifest& manifest) {
  WeightOrigin origin{manifest.recipe, std::to_string(manifest.step),
                      build_info().version + " " + build_info().git_revision, ""};
  if (const ManifestValue* tokenizer = manifest.find_value(kDataTokenizer)) {
    origin.tokenizer = std::get<std::string>(tokenizer->value);
  }
  return origin;
}

}  // namespace

std::vector<std::string> export_programs() {
  std::set<std::string> programs{std::string(kOwnLayout)};
  for (const auto& format : all_formats()) programs.emplace(format->program());
  return {programs.begin(), programs.end()};
}

ExitCode export_weights(const ExportArguments& arguments, std::ostream& out) {
  const CheckpointReader reader = open_reader(arguments.checkpoint);
  const Recipe recipe = stored_recipe(reader.manifest(), reader.path());
  const auto format = find_format(arguments.program, recipe);
  const auto source = make_source(recipe);
  const DataShape data = source->shape();
  ModelToExport exported{recipe.model.backbone, recipe.task, data, source->image_transform(),
                         source->class_names()};
  if (format) check_exportable(*format, exported, reader.path());
  const BuiltModel model = build_model(recipe, data);
  const FoldedWeights folded(recipe, model, reader);
  const StateList& weights = folded.listed();
  const std::vector<WeightName> names =
      format ? format->names(recipe.model.backbone, recipe.task, data) : own_names(weights);
  require_all_named(names, weights, or_own_layout("train it without these options"));
  const std::vector<Export> exports =
      plan_export(names, format ? format->prefix() : "", weights, reader, arguments);
  exported.dtype = name_of_exported(exports.front().entry.dtype);
  NewFolder folder(arguments.out);
  write_safetensors(exports, folded, format ? kMetadata : to_metadata(origin_of(reader.manifest())),
                    folder.working_path() + "/model.safetensors");
  PosixFileSystem files;
  replace_file(files, folder.working_path() + (format ? "/config.json" : "/recipe.yaml"),
               format ? format->config(exported) : reader.manifest().recipe);
  if (!format) {
    replace_file(files, folder.working_path() + "/recipe.json", describe_model(recipe, *source));
  }
  folder.commit();
  print_result(out, arguments.json,
               {{"path", arguments.out},
                {"checkpoint", reader.path()},
                {"program", arguments.program},
                {"tensors", exports.size()}},
               fmt::format("{}: {} of {}\n", arguments.out, counted(std::ssize(exports), "tensor"),
                           reader.path()));
  return ExitCode::kOk;
}

}  // namespace shoal
