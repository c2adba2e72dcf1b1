#include "launch/maps/activation_maps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "moe/nexus/nexus_layer.h"
#include "runtime/base/json_text.h"
#include "runtime/base/text.h"
#include "runtime/files/new_folder.h"

// B images of a batch  C channels  N tokens of an image  U units  s slots of a unit
namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::shared_ptr<NexusLayer>> nexus_layers(const BuiltModel& model) {
  std::vector<std::shared_ptr<NexusLayer>> layers;
  for (const auto& stage : model.stages) {
    if (auto layer = std::dynamic_pointer_cast<NexusLayer>(stage)) layers.push_back(layer);
  }
  return layers;
}

void add_maps(LayerMaps& maps, const NexusLayer& layer, const torch::Tensor& dispatch_BNUs,
              const ImageShape& shape) {
  const std::optional<TokenGrid> grid = find_token_grid(dispatch_BNUs.size(1), shape);
  TORCH_CHECK(grid.has_value(), dispatch_BNUs.size(1), " tokens are not patches of an image of ",
              shape.height, " x ", shape.width, " pixels");
  maps.rows = grid->rows;
  maps.columns = grid->columns;
  const int64_t num_experts = layer.num_experts();
  const int64_t num_memory = dispatch_BNUs.size(2) - num_experts;
  const auto map_of = [&](int64_t image, int64_t first,
                          int64_t count) -> std::optional<ActivationMap> {
    if (count == 0) return std::nullopt;
    return activation_map(dispatch_BNUs.narrow(2, first, count), image, *grid);
  };
  for (int64_t image = 0; image < dispatch_BNUs.size(0); ++image) {
    maps.experts.push_back(map_of(image, 0, num_experts));
    maps.memory.push_back(map_of(image, num_experts, num_memory));
  }
}

/// Maps of the first images of the validation split.
ActivationMaps collect(const ImageModel& opened, int64_t num_images) {
  const auto layers = nexus_layers(opened.model);
  ActivationMaps maps;
  for (const auto& layer : layers) maps.layers.push_back({layer->path(), 0, 0, {}, {}});
  for_first_images(opened, num_images,
                   [&](const Batch& batch, const ImageShape& shape, const LabelledImages& first) {
                     const int64_t count = std::ssize(first.images);
                     for (size_t i = 0; i < layers.size(); ++i) {
                       layers[i]->observe([&, i](const torch::Tensor& dispatch_BNUs) {
                         add_maps(maps.layers[i], *layers[i], dispatch_BNUs.narrow(0, 0, count),
                                  shape);
                       });
                     }
                     std::ranges::copy(first.images, std::back_inserter(maps.images));
                     std::ranges::copy(first.labels, std::back_inserter(maps.labels));
                     opened.model.task->outputs(batch);
                   });
  for (const auto& layer : layers) layer->observe({});
  return maps;
}

Json maps_json(const LayerMaps& layer, const std::vector<std::string>& labels) {
  Json images = Json::array();
  for (size_t i = 0; i < layer.memory.size(); ++i) {
    images.push_back({{"image", i},
                      {"label", labels[i].empty() ? Json() : Json(labels[i])},
                      {"memory_entropy", or_null<Json>(mean_entropy({layer.memory[i]}))},
                      {"expert_entropy", or_null<Json>(mean_entropy({layer.experts[i]}))}});
  }
  return {{"layer", layer.layer},
          {"rows", layer.rows},
          {"columns", layer.columns},
          {"memory_entropy", or_null<Json>(mean_entropy(layer.memory))},
          {"expert_entropy", or_null<Json>(mean_entropy(layer.experts))},
          {"images", images}};
}

std::string maps_table(const Json& drawn) {
  const auto cell = [](const Json& entropy) {
    return entropy.is_null() ? "-" : fmt::format("{:.4f}", entropy.get<double>());
  };
  std::vector<std::vector<std::string>> rows{
      {"Nexus layer", "tokens", "H/ln N of memory units", "of expert units"}};
  for (const Json& layer : drawn["layers"]) {
    rows.push_back(
        {layer["layer"].get<std::string>(),
         fmt::format("{} x {}", layer["rows"].get<int64_t>(), layer["columns"].get<int64_t>()),
         cell(layer["memory_entropy"]), cell(layer["expert_entropy"])});
  }
  return fmt::format("{}, step {}, mean over {} validation images\n{}\npictures: {}\n",
                     drawn["checkpoint"].get<std::string>(), drawn["step"].get<int64_t>(),
                     drawn["images"].get<size_t>(), text_table(rows),
                     drawn["page"].get<std::string>());
}

}  // namespace

ActivationMap activation_map(const torch::Tensor& unit_BNUs, int64_t image, const TokenGrid& grid) {
  const torch::Tensor weight_NUs = unit_BNUs[image].to(torch::kCPU, torch::kFloat64);
  const auto num_tokens = static_cast<double>(weight_NUs.size(0));
  const torch::Tensor mean_N = weight_NUs.mean(at::IntArrayRef{1, 2}) * num_tokens;
  const torch::Tensor shown = mean_N.narrow(0, grid.first, grid.rows * grid.columns).contiguous();
  ActivationMap map;
  map.weight.assign(shown.data_ptr<double>(), shown.data_ptr<double>() + shown.numel());
  if (num_tokens > 1) {
    const torch::Tensor entropy_Us = -torch::xlogy(weight_NUs, weight_NUs).sum(0);
    map.entropy = entropy_Us.mean().item<double>() / std::log(num_tokens);
  }
  return map;
}

ExitCode draw_activation_maps(const ImageMapsArguments& arguments, const Environment& environment,
                              std::ostream& out) {
  const std::string& folder = arguments.folder;
  require_free_folder("--activation-maps", folder);
  const ImageModel opened(arguments.checkpoint, environment, "activation maps");
  const OpenedCheckpoint& checkpoint = opened.checkpoint;
  if (nexus_layers(opened.model).empty()) {
    throw Error(ExitCode::kUsage,
                fmt::format("the model of '{}' has no Nexus layers, so no units to draw maps of",
                            checkpoint.path));
  }
  load_model(checkpoint, opened.model);
  const ActivationMaps maps = collect(opened, arguments.images);
  PosixFileSystem files;
  const std::string title =
      fmt::format("Memory and expert units at step {}", checkpoint.manifest.step);
  fill_folder(files, folder, [&] { write_activation_page(files, folder, title, maps); });
  Json layers = Json::array();
  for (const LayerMaps& layer : maps.layers) layers.push_back(maps_json(layer, maps.labels));
  const Json drawn{{"checkpoint", checkpoint.path},
                   {"step", checkpoint.manifest.step},
                   {"page", folder + "/index.html"},
                   {"images", maps.images.size()},
                   {"layers", layers}};
  out << (arguments.json ? json_text(drawn) + "\n" : maps_table(drawn));
  return ExitCode::kOk;
}

}  // namespace shoal
