#include "launch/train/tensorboard_events.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "launch/report/load_map.h"

namespace shoal {
namespace {

EventSummary numbers_of(const std::string& group, const MetricsRecord& record) {
  EventSummary summary;
  for (const auto& [key, value] : record.entries()) {
    if (key == "step") continue;  // the event's own
    if (const auto* integer = std::get_if<int64_t>(&value)) {
      summary.add_scalar(group + key, static_cast<double>(*integer));
    } else if (const auto* real = std::get_if<double>(&value)) {
      summary.add_scalar(group + key, *real);
    }
  }
  return summary;
}

void add_layer(const MoeReport& layer, EventSummary& summary) {
  const std::string group = "experts/" + layer.layer + "/";
  if (layer.load_mean > 0) {
    std::vector<double> load_over_mean;
    for (const int64_t load : layer.load_U) {
      load_over_mean.push_back(static_cast<double>(load) / layer.load_mean);
    }
    summary.add_histogram(group + "load", load_over_mean);
    summary.add_scalar(group + "load_max_over_mean", layer.load_max / layer.load_mean);
  }
  summary.add_scalar(group + "load_entropy", layer.load_entropy);
  summary.add_scalar(group + "dead_experts", static_cast<double>(layer.dead_units));
  summary.add_scalar(group + "dropped", layer.dropped);
}

}  // namespace

StepEvent TensorBoardEvents::step(int64_t step, const MetricsRecord& record,
                                  const std::vector<MoeReport>& moe) {
  StepEvent event{step, numbers_of("train/", record)};
  last_step_ = step;
  load_.resize(moe.size());
  for (size_t i = 0; i < moe.size(); ++i) {
    if (i < kMostLayers) add_layer(moe[i], event.summary);
    load_[i].resize(moe[i].load_U.size(), 0.0);
    for (size_t unit = 0; unit < load_[i].size(); ++unit) {
      load_[i][unit] += static_cast<double>(moe[i].load_U[unit]);
    }
  }
  return event;
}

StepEvent TensorBoardEvents::evaluation(int64_t step, const MetricsRecord& record) {
  StepEvent event{step, numbers_of("evaluate/", record)};
  add_picture(event.summary);
  return event;
}

std::optional<StepEvent> TensorBoardEvents::rest() {
  StepEvent event{last_step_, {}};
  add_picture(event.summary);
  return event.summary.empty() ? std::nullopt : std::optional(std::move(event));
}

void TensorBoardEvents::add_picture(EventSummary& summary) {
  const auto has_unit = [](const std::vector<double>& load) { return !load.empty(); };
  if (!std::ranges::any_of(load_, has_unit)) return;
  const Picture picture = load_picture(std::exchange(load_, {}));
  summary.add_image("experts/load", {picture.width, picture.height, png_bytes(picture)});
}

}  // namespace shoal
