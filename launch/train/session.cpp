#include "launch/train/session.h"

#include <fmt/format.h>

#include <cmath>

#include "moe/moe_layer.h"
#include "runtime/base/size_limits.h"

namespace shoal {
namespace {

constexpr int64_t kBucketBytes = 25'000'000;

StepScale step_scale(const Recipe& recipe, int64_t num_samples) {
  StepScale scale{.samples_per_epoch = num_samples, .samples_per_step = recipe.train.batch};
  scale.total_steps = to_steps(recipe.train.duration, scale);
  return scale;
}

void add(std::vector<MoeStats>& total, const std::vector<MoeStats>& micro) {
  if (total.empty()) {
    total = micro;
    return;
  }
  for (size_t layer = 0; layer < total.size(); ++layer) total[layer].add(micro[layer]);
}

torch::Dtype compute_dtype_of(const Recipe& recipe) {
  return recipe.train.precision == Precision::kBfloat16 ? torch::kBFloat16 : dtype_of(recipe);
}

}  // namespace

torch::Dtype dtype_of(const Recipe& recipe) {
  return recipe.train.precision == Precision::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

ImageShape image_shape_of(const Recipe& recipe) { return make_source(recipe)->image_shape(); }

LoaderSettings loader_settings(const Recipe& recipe, const RankGrid& grid) {
  const std::shared_ptr<DataSource> source = make_source(recipe);
  LoaderSettings settings;
  settings.cut = {recipe.train.batch, recipe.train.accumulate, recipe.train.group};
  settings.rank = grid.world->rank();
  settings.world = grid.world->size();
  settings.seed = static_cast<uint64_t>(recipe.run.seed);
  settings.dtype = compute_dtype_of(recipe);
  settings.augment = recipe.data.augment;
  settings.stats =
      resolve_stats(recipe.data.normalise, source->channel_stats(), source->image_shape().channels);
  settings.prefetch = recipe.data.prefetch;
  settings.device = grid.device;
  return settings;
}

std::shared_ptr<DataSource> make_source(const Recipe& recipe) {
  return Registry<DataSource>::create(recipe.data.source, {});
}

void check_units(const Backbone& backbone, torch::Device device) {
  if (!device.is_cuda()) return;
  for (const auto& module : backbone.modules(/*include_self=*/false)) {
    const auto layer = std::dynamic_pointer_cast<MoeLayer>(module);
    const int64_t num_units = layer ? layer->info().num_units : 0;
    if (num_units <= kMostUnitsOnGpu) continue;
    throw ConfigError(fmt::format("{}: {} units, a GPU routes to at most {}; lower experts.count, "
                                  "or set run.device=cpu",
                                  layer->path(), num_units, kMostUnitsOnGpu),
                      ExitCode::kTopology);
  }
}

BuiltModel build_model(const Recipe& recipe, RankGrid* grid, torch::Device device,
                       const UnitLoads& unit_load) {
  const std::shared_ptr<DataSource> source = make_source(recipe);
  BuildContext build;
  build.grid = grid;
  build.tensor_options = torch::TensorOptions().dtype(dtype_of(recipe)).device(device);
  build.recomputes = recipe.train.recompute;
  build.placement = recipe.parallel.placement;
  build.unit_load = unit_load;
  auto backbone = Registry<Backbone>::create(recipe.model.backbone, {build, source->image_shape()});
  check_units(*backbone, device);
  auto task = Registry<Task>::create(recipe.task, {backbone, build, source->num_classes()});
  BuiltModel model{backbone, task, parameters_of(*task), buffers_of(*task)};
  if (!device.is_meta()) {
    initialise(model.parameters, static_cast<uint64_t>(recipe.run.seed));
    initialise(model.buffers, static_cast<uint64_t>(recipe.run.seed));
  }
  return model;
}

StepReport reduce(const StepOutcome& outcome, Communicator& world) {
  std::vector<torch::Tensor> parts{outcome.loss.reshape({1})};
  for (const MoeStats& stats : outcome.moe) parts.push_back(stats.sums);
  torch::Tensor sums = torch::cat(parts).to(torch::kCPU);
  all_reduce(world, sums);
  StepReport result;
  result.loss = sums[0].item<double>();
  int64_t offset = 1;
  for (MoeStats stats : outcome.moe) {
    const int64_t length = stats.sums.numel();
    stats.sums = sums.narrow(0, offset, length);
    offset += length;
    result.moe.push_back(report(stats));
  }
  return result;
}

Session::Session(const Recipe& recipe, const SampleSet& train_data, RankGrid& grid,
                 const UnitLoads& unit_load)
    : recipe_(recipe),
      grid_(grid),
      model_(build_model(recipe, &grid, grid.device, unit_load)),
      loader_(train_data, image_shape_of(recipe), loader_settings(recipe, grid)),
      sync_(group_parameters(model_.parameters, grid), *grid.world, kBucketBytes,
            recipe.parallel.shard_optimizer),
      shards_(recipe.parallel.shard_optimizer ? std::make_unique<OptimizerShards>(sync_) : nullptr),
      optimizer_(Registry<Optimizer>::create(
          recipe.optimizer, shards_ ? Optimizer::Context{shards_->pieces(), shards_.get()}
                                    : Optimizer::Context{model_.parameters})),
      scale_(step_scale(recipe, train_data.size())),
      schedule_(Registry<Schedule>::create(recipe.schedule, scale_)),
      control_(grid, sync_.communicators()) {}

StepOutcome Session::step(StepFlags own) {
  StepOutcome outcome;
  outcome.lr = optimizer_->peak_learning_rate() * schedule_->factor(step_);
  sync_.zero_grad();
  run_micro_steps(outcome);
  sync_.reduce();
  const GradientStats found = survey();
  outcome.grad_norm = global_norm(found, *grid_.world);
  own.nonfinite = !std::isfinite(outcome.grad_norm);
  outcome.agreed = control_.agree(own);
  outcome.applied = !outcome.agreed.nonfinite;
  if (outcome.applied) {
    update(outcome);
  } else {
    outcome.bad_tensor = first_nonfinite(found, *grid_.world);
    ++nonfinite_in_row_;
    ++skipped_steps_;
  }
  outcome.step = ++step_;
  return outcome;
}

void Session::run_micro_steps(StepOutcome& outcome) {
  outcome.loss = torch::zeros({}, torch::TensorOptions(torch::kFloat64).device(grid_.device));
  for (int64_t micro = 0; micro < recipe_.train.accumulate; ++micro) {
    Batch batch = loader_.next();
    batch.context.step = step_;
    outcome.data_wait_seconds += batch.wait_s;
    const TrainOutput output = model_.task->train({batch.image_bCHW, batch.label_b}, batch.context);
    if (recipe_.parallel.overlap_gradients && micro + 1 == recipe_.train.accumulate) {
      sync_.start_with_backward();
    }
    output.loss.backward();
    outcome.loss += output.loss.detach().to(torch::kFloat64);
    add(outcome.moe, output.moe);
  }
}

void Session::update(const StepOutcome& outcome) {
  nonfinite_in_row_ = 0;
  clip(outcome.grad_norm);
  optimizer_->step(outcome.lr);
  if (shards_) shards_->gather_weights();
  model_.task->after_step(step_);
}

GradientStats Session::survey() const {
  return shards_ ? gradient_stats(shards_->pieces(), shards_->indices())
                 : gradient_stats(sync_.groups());
}

void Session::clip(double l2_norm) {
  const TrainOptions& train = recipe_.train;
  if (train.clip_norm == 0.0) return;
  double norm = l2_norm;
  if (train.clip_norm_type == NormType::kInf) {
    norm = shards_ ? global_max_norm(shards_->pieces(), *grid_.world)
                   : global_max_norm(sync_.groups(), *grid_.world);
  }
  const double factor = clip_factor(norm, train.clip_norm);
  if (factor != 1.0) sync_.scale(factor);
}

std::optional<double> Session::exchange_wait_seconds() const {
  if (grid_.device.is_cuda()) return std::nullopt;
  return grid_.expert->counters().wait_seconds + grid_.intra_node->counters().wait_seconds +
         grid_.inter_node->counters().wait_seconds;
}

void Session::visit_state(StateVisitor& visitor) {
  visit_weights(model_, visitor);
  optimizer_->visit_state(visitor);
  model_.task->visit_state(visitor);
  loader_.visit_state(visitor);
  visitor.integer("trainer.step", step_);
  visitor.integer("trainer.nonfinite_in_row", nonfinite_in_row_);
  visitor.integer("trainer.skipped_steps", skipped_steps_);
}

void visit_weights(const BuiltModel& model, StateVisitor& visitor) {
  for (const std::vector<Parameter>* list : {&model.parameters, &model.buffers}) {
    for (const Parameter& parameter : *list) {
      torch::Tensor value = parameter.tensor.detach();
      visitor.tensor({parameter.name, value, parameter.is_stacked(), parameter.unit_ids});
    }
  }
}

int64_t count_elements(const std::vector<Parameter>& parameters) {
  int64_t total = 0;
  for (const Parameter& parameter : parameters) total += parameter.tensor.numel();
  return total;
}

}  // namespace shoal
