#include "launch/commands/activation_maps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "launch/commands/open_checkpoint.h"
#include "launch/report/console.h"
#include "launch/train/session.h"
#include "moe/nexus/nexus_layer.h"
#include "runtime/data/loader.h"

// B images of a batch  C channels  N tokens of an image  U units  s slots of a unit
namespace shoal {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::vector<std::shared_ptr<NexusLayer>> nexus_layers(const BuiltModel& model) {
  std::vector<std::shared_ptr<NexusLayer>> layers;
  for (const auto& stage : model.stages) {
    if (auto layer = std::dynamic_pointer_cast<NexusLayer>(stage)) layers.push_back(layer);
  }
  return layers;
}

/// As it was before it was normalised; one channel is shown grey.
Picture picture_of(const torch::Tensor& image_CHW, const ChannelStats& stats) {
  const auto per_channel = [](const std::vector<double>& values) {
    return torch::tensor(values, torch::kFloat64).view({-1, 1, 1});
  };
  torch::Tensor pixel_CHW =
      image_CHW.to(torch::kCPU, torch::kFloat64) * per_channel(stats.std) + per_channel(stats.mean);
  if (pixel_CHW.size(0) != 3) pixel_CHW = pixel_CHW.narrow(0, 0, 1).expand({3, -1, -1});
  const torch::Tensor byte_HWC =
      (pixel_CHW.clamp(0.0, 1.0) * 255 + 0.5).to(torch::kUInt8).permute({1, 2, 0}).contiguous();
  Picture picture{byte_HWC.size(1), byte_HWC.size(0), {}};
  picture.pixels.resize(static_cast<size_t>(picture.width * picture.height));
  std::memcpy(picture.pixels.data(), byte_HWC.const_data_ptr(), byte_HWC.nbytes());
  return picture;
}

void add_maps(LayerMaps& maps, const NexusLayer& layer, const torch::Tensor& dispatch_BNUs,
              const ImageShape& shape) {
  const TokenGrid grid = grid_of_tokens(dispatch_BNUs.size(1), shape);
  maps.rows = grid.rows;
  maps.columns = grid.columns;
  const int64_t num_experts = layer.num_experts();
  const int64_t num_memory = dispatch_BNUs.size(2) - num_experts;
  const auto map_of = [&](int64_t image, int64_t first,
                          int64_t count) -> std::optional<ActivationMap> {
    if (count == 0) return std::nullopt;
    return activation_map(dispatch_BNUs.narrow(2, first, count), image, grid);
  };
  for (int64_t image = 0; image < dispatch_BNUs.size(0); ++image) {
    maps.experts.push_back(map_of(image, 0, num_experts));
    maps.memory.push_back(map_of(image, num_experts, num_memory));
  }
}

/// Of the first images of the validation split.
ActivationMaps collect(const BuiltModel& model, const Recipe& recipe, int64_t num_images,
                       const RankGrid& grid) {
  const torch::NoGradGuard no_grad;
  const OpenSplit data = open_split(make_source(recipe), Split::kValid);
  const LoaderSettings settings = loader_settings(recipe, data, grid);
  const ImageTransform& images = settings.images.value();
  const auto layers = nexus_layers(model);
  ActivationMaps maps;
  for (const auto& layer : layers) maps.layers.push_back({layer->path(), 0, 0, {}, {}});
  int64_t wanted = 0;  // of the batch at hand
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i]->observe([&, i](const torch::Tensor& dispatch_BNUs) {
      add_maps(maps.layers[i], *layers[i], dispatch_BNUs.narrow(0, 0, wanted), images.shape);
    });
  }
  EvalLoader loader(*data.samples, settings);
  while (static_cast<int64_t>(maps.images.size()) < num_images) {
    const std::optional<Batch> batch = loader.next();
    if (!batch) break;
    wanted = std::min(batch->context.sample_b.size(0),
                      num_images - static_cast<int64_t>(maps.images.size()));
    const torch::Tensor image_bCHW = batch->image_bCHW();
    for (int64_t i = 0; i < wanted; ++i) {
      maps.images.push_back(picture_of(image_bCHW[i], images.stats));
    }
    model.task->outputs(*batch);
  }
  for (const auto& layer : layers) layer->observe({});
  return maps;
}

Json entropy_json(const std::vector<std::optional<ActivationMap>>& maps) {
  const std::optional<double> entropy = mean_entropy(maps);
  return entropy ? Json(*entropy) : Json();
}

Json maps_json(const LayerMaps& layer) {
  Json images = Json::array();
  for (size_t i = 0; i < layer.memory.size(); ++i) {
    images.push_back({{"image", i},
                      {"memory_entropy", entropy_json({layer.memory[i]})},
                      {"expert_entropy", entropy_json({layer.experts[i]})}});
  }
  return {{"layer", layer.layer},
          {"rows", layer.rows},
          {"columns", layer.columns},
          {"memory_entropy", entropy_json(layer.memory)},
          {"expert_entropy", entropy_json(layer.experts)},
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

void require_free_folder(const std::string& folder) {
  std::error_code error;
  const bool is_free =
      fs::is_directory(folder, error) ? fs::is_empty(folder, error) : !fs::exists(folder, error);
  if (is_free && !error) return;
  throw Error(ExitCode::kUsage,
              fmt::format("--activation-maps '{}': is not an empty folder", folder),
              "name a folder that does not exist yet");
}

}  // namespace

TokenGrid grid_of_tokens(int64_t num_tokens, const ImageShape& image) {
  for (const int64_t first : {0, 1}) {
    for (int64_t side = 1; side <= std::min(image.height, image.width); ++side) {
      const int64_t rows = image.height / side, columns = image.width / side;
      if (rows * columns == num_tokens - first) return {rows, columns, first};
    }
  }
  TORCH_CHECK(false, num_tokens, " tokens are no patches of an image of ", image.height, " x ",
              image.width, " pixels");
}

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

ExitCode draw_activation_maps(const InspectArguments& arguments, const Environment& environment,
                              std::ostream& out) {
  const std::string& folder = arguments.activation_maps;
  require_free_folder(folder);
  OpenedCheckpoint opened =
      open_checkpoint_alone({arguments.path, arguments.best, arguments.overrides}, environment);
  const Recipe& recipe = opened.recipe;
  const DataShape shape = make_source(recipe)->shape();
  if (!shape.image) {
    throw Error(ExitCode::kUsage, fmt::format("activation maps are drawn on images, data.source {} "
                                              "gives {}",
                                              shape.source, shape.text()));
  }
  const BuiltModel model = build_model(recipe, shape, &opened.grid, torch::kCPU);
  if (nexus_layers(model).empty()) {
    throw Error(ExitCode::kUsage,
                fmt::format("the model of '{}' has no Nexus layers, so no units to draw maps of",
                            opened.path));
  }
  load_model(opened, model);
  const ActivationMaps maps = collect(model, recipe, arguments.images, opened.grid);
  PosixFileSystem files;
  if (!fs::exists(folder)) make_directory(files, folder);
  write_activation_page(
      files, folder, fmt::format("Memory and expert units at step {}", opened.manifest.step), maps);
  Json layers = Json::array();
  for (const LayerMaps& layer : maps.layers) layers.push_back(maps_json(layer));
  const Json drawn{{"checkpoint", opened.path},
                   {"step", opened.manifest.step},
                   {"page", folder + "/index.html"},
                   {"images", maps.images.size()},
                   {"layers", layers}};
  out << (arguments.json ? json_text(drawn) + "\n" : maps_table(drawn));
  return ExitCode::kOk;
}

}  // namespace shoal
