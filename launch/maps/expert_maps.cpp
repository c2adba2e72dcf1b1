#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "launch/maps/expert_page.h"
#include "launch/maps/image_maps.h"
#include "runtime/base/json_text.h"
#include "runtime/base/text.h"
#include "runtime/files/new_folder.h"

// b images of a batch  N patches of an image  T = b R rows of a layer
namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

/// Minimum number of images that are measured, if the split has as many.
constexpr int64_t kMeasuredImages = 512;

/// A layer that cannot be drawn, with the reason.
struct LeftOut {
  std::string layer, reason;
};

/// A drawn MoE layer, and how its rows lie on the image.
struct MappedLayer {
  TokenGrid grid;
  ExpertMap map;
  RegionCounter regions;
};

class ExpertMapCollector {
 public:
  explicit ExpertMapCollector(int64_t num_drawn) : num_drawn_(num_drawn) {}

  /// Adds the first images of a batch with their labels and routing.
  void add(const LabelledImages& first_images, const std::vector<MoeStats>& stats,
           const ImageShape& shape, int64_t batch_size) {
    const std::vector<Picture>& images = first_images.images;
    if (maps_.measured_images == 0) begin(stats, shape, batch_size);
    std::map<std::pair<int64_t, int64_t>, std::vector<std::vector<RegionFeatures>>> features;
    for (auto& [place, layer] : layers_) {
      const auto [rows, columns, first] = layer.grid;
      auto& own = features[{rows, columns}];
      if (own.empty()) {
        for (const Picture& image : images) own.push_back(region_features(image, rows, columns));
      }
      const torch::Tensor unit_bR =
          stats[place].first_unit_T.to(torch::kCPU, torch::kInt64).view({batch_size, -1});
      for (size_t i = 0; i < images.size(); ++i) {
        const torch::Tensor unit_N =
            unit_bR[static_cast<int64_t>(i)].narrow(0, first, rows * columns).contiguous();
        const int64_t* units = unit_N.const_data_ptr<int64_t>();
        const std::vector<int64_t> unit(units, units + unit_N.numel());
        layer.regions.add(unit, own[i]);
        if (maps_.measured_images + static_cast<int64_t>(i) < num_drawn_) {
          layer.map.unit_N.push_back(unit);
        }
      }
    }
    for (size_t i = 0; i < images.size(); ++i) {
      if (maps_.measured_images++ >= num_drawn_) continue;
      maps_.images.push_back(images[i]);
      maps_.labels.push_back(first_images.labels[i]);
    }
  }

  ExpertMaps maps() {
    for (auto& [place, layer] : layers_) {
      layer.map.regions = layer.regions.table();
      maps_.layers.push_back(std::move(layer.map));
    }
    return std::move(maps_);
  }
  const std::vector<LeftOut>& left_out() const { return left_out_; }

 private:
  void begin(const std::vector<MoeStats>& stats, const ImageShape& shape, int64_t batch_size) {
    for (size_t place = 0; place < stats.size(); ++place) {
      const auto& [layer, units] = std::pair{stats[place].layer, stats[place].first_unit_T};
      if (!stats[place].rows_are_tokens) {
        left_out_.push_back({layer, "its rows are channels or mixtures of tokens"});
        continue;
      }
      if (!units.defined()) {
        left_out_.push_back({layer, "it routes no token to a first unit"});
        continue;
      }
      const int64_t num_rows = units.numel() / batch_size;
      const std::optional<TokenGrid> grid = find_token_grid(num_rows, shape);
      if (!grid) {
        left_out_.push_back({layer, fmt::format("its {} tokens are not patches", num_rows)});
        continue;
      }
      layers_.emplace_back(place, MappedLayer{*grid,
                                              {layer, grid->rows, grid->columns, {}, {}},
                                              RegionCounter(stats[place].placement.num_units())});
    }
  }

  int64_t num_drawn_;
  ExpertMaps maps_;
  std::vector<std::pair<size_t, MappedLayer>> layers_;  ///< with their place in the statistics
  std::vector<LeftOut> left_out_;
};

/// Throws Error if no layer can be drawn.
void require_layers(const ExpertMaps& maps, const std::vector<LeftOut>& left_out,
                    const std::string& checkpoint) {
  if (!maps.layers.empty()) return;
  std::string reasons;
  for (const auto& [layer, reason] : left_out) {
    reasons += fmt::format("{}{}: {}", reasons.empty() ? " (" : "; ", layer, reason);
  }
  throw Error(ExitCode::kUsage,
              fmt::format("the model of '{}' has no MoE layers over patches of images{}{}",
                          checkpoint, reasons, reasons.empty() ? "" : ")"));
}

Json region_json(const RegionFeatures& mean, const RegionFeatures& other, const char* name) {
  Json json = Json::object();
  for (size_t i = 0; i < mean.size(); ++i) {
    json[kRegionFeatures[i]] = {{"mean", mean[i]}, {name, other[i]}};
  }
  return json;
}

Json layer_regions(const ExpertMap& layer) {
  const RegionTable& regions = layer.regions;
  Json units = Json::array();
  for (const RegionTable::Unit& unit : regions.units) {
    Json item{{"unit", unit.id < 0 ? Json() : Json(unit.id)},
              {"patches", unit.patches},
              {"share", regions.share(unit)}};
    if (unit.patches > 0) item.update(region_json(unit.mean, unit.difference, "difference"));
    units.push_back(item);
  }
  return {{"layer", layer.layer},
          {"rows", layer.rows},
          {"columns", layer.columns},
          {"patches", regions.patches},
          {"all", region_json(regions.mean, regions.deviation, "deviation")},
          {"units", units}};
}

std::string regions_text(const Json& drawn, const std::vector<ExpertMap>& layers) {
  TableRows rows;
  for (const ExpertMap& layer : layers) {
    TableRows own = region_rows(layer.regions);
    own[0].insert(own[0].begin(), "MoE layer");
    own[1].insert(own[1].begin(), layer.layer);
    for (size_t i = 2; i < own.size(); ++i) own[i].insert(own[i].begin(), "");
    rows.insert(rows.end(), own.begin() + (rows.empty() ? 0 : 1), own.end());
  }
  std::string left_out;
  for (const Json& layer : drawn["left_out"]) {
    left_out += fmt::format("left out: {}, {}\n", layer["layer"].get<std::string>(),
                            layer["reason"].get<std::string>());
  }
  return fmt::format(
      "{}, step {}, patches of {} validation images by the unit they are routed to first: mean, "
      "and the difference from all patches in standard deviations\n{}\n{}pictures of {}: {}\n",
      drawn["checkpoint"].get<std::string>(), drawn["step"].get<int64_t>(),
      drawn["measured_images"].get<int64_t>(), text_table(rows), left_out,
      drawn["images"].get<size_t>(), drawn["page"].get<std::string>());
}

}  // namespace

ExitCode draw_expert_maps(const ImageMapsArguments& arguments, const Environment& environment,
                          std::ostream& out) {
  const std::string& folder = arguments.folder;
  require_free_folder("--expert-maps", folder);
  const ImageModel opened(arguments.checkpoint, environment, "expert maps");
  const OpenedCheckpoint& checkpoint = opened.checkpoint;
  load_model(checkpoint, opened.model);
  ExpertMapCollector collector(arguments.images);
  for_first_images(opened, std::max(arguments.images, kMeasuredImages),
                   [&](const Batch& batch, const ImageShape& shape, const LabelledImages& first) {
                     collector.add(first, opened.model.task->evaluate(batch).moe, shape,
                                   batch.context.sample_b.size(0));
                   });
  const std::vector<LeftOut> left_out = collector.left_out();
  const ExpertMaps maps = collector.maps();
  require_layers(maps, left_out, checkpoint.path);
  PosixFileSystem files;
  const std::string title =
      fmt::format("Experts of image patches at step {}", checkpoint.manifest.step);
  fill_folder(files, folder, [&] { write_expert_page(files, folder, title, maps); });
  Json layers = Json::array(), missing = Json::array();
  for (const ExpertMap& layer : maps.layers) layers.push_back(layer_regions(layer));
  for (const auto& [layer, reason] : left_out) {
    missing.push_back({{"layer", layer}, {"reason", reason}});
  }
  const Json drawn{{"checkpoint", checkpoint.path},
                   {"step", checkpoint.manifest.step},
                   {"page", folder + "/index.html"},
                   {"images", maps.images.size()},
                   {"measured_images", maps.measured_images},
                   {"layers", layers},
                   {"left_out", missing}};
  out << (arguments.json ? json_text(drawn) + "\n" : regions_text(drawn, maps.layers));
  return ExitCode::kOk;
}

}  // namespace shoal
