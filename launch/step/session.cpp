#include "launch/step/session.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "launch/model/model_weights.h"

namespace shoal {
namespace {

StepScale step_scale(const Recipe& recipe, const OpenSplit& data) {
  StepScale scale{.samples_per_epoch = data.samples->size(),
                  .samples_per_step = recipe.train.batch,
                  .tokens_per_sample = data.source->shape().sequence};
  constexpr int64_t kBeyondTrials = int64_t{1} << 40;
  scale.total_steps =
      recipe.train.duration.is_time() ? kBeyondTrials : to_steps(recipe.train.duration, scale);
  return scale;
}

}  // namespace

StepReport reduce(const StepOutcome& outcome, Communicator& world) {
  ReducedStats sums = reduce(outcome.loss.reshape({1}), outcome.moe, world);
  return {sums.numbers.item<double>(), std::move(sums.layers), 1.0};
}

Session::Session(const Recipe& recipe, BuiltModel model, const OpenSplit& train_data,
                 RankGrid& grid, const StepRuleFactory& make_rules)
    : recipe_(recipe),
      train_data_(train_data),
      grid_(grid),
      model_(std::move(model)),
      loader_(*train_data.samples, loader_settings(recipe, train_data, grid, model_.task->views())),
      sync_(group_parameters(model_.parameters, grid), *grid.world, GradientSync::kBucketBytes,
            recipe.parallel.shard_optimizer),
      shards_(recipe.parallel.shard_optimizer ? std::make_unique<OptimizerShards>(sync_) : nullptr),
      optimizer_(Registry<Optimizer>::create(
          recipe.optimizer, shards_
                                ? Optimizer::Context{shards_->pieces(), shards_.get()}
                                : Optimizer::Context{model_.parameters, nullptr, model_.buffers})),
      share_(shards_ ? shards_->share() : share_of(sync_.groups())),
      scale_(step_scale(recipe, train_data)),
      schedule_(Registry<Schedule>::create(recipe.schedule, scale_)),
      control_(grid, sync_.communicators()),
      rules_(make_rules(recipe, model_, scale_)) {
  for (const Parameter& buffer :
       frozen_buffers(rules_of(recipe.optimizer), model_.parameters, model_.buffers)) {
    moving_.push_back(buffer.tensor);
  }
  num_frozen_ = moving_.size();
  for (const Parameter& buffer : model_.buffers) moving_.push_back(buffer.tensor);
  for (const auto& rule : rules_)
    std::ranges::move(rule->moved_weights(), std::back_inserter(moving_));
}

StepOutcome Session::step(StepFlags own) {
  StepOutcome outcome;
  outcome.lr = optimizer_->peak_learning_rate() * schedule_->factor(step_);
  sync_.zero_grad();
  if (step_ > 0) save_moving_state();
  for (const auto& rule : rules_) rule->before_forward(step_);
  // What rules set at step 0 is their start, which a skipped step keeps.
  if (step_ == 0) save_moving_state();
  run_micro_steps(outcome);
  phase_ = "sum of gradients";
  sync_.reduce();
  StepTensors tensors(sync_, shards_.get(), *optimizer_);
  for (const auto& rule : rules_) tensors.gather_gradients(rule->needs_whole_gradients(step_));
  for (const auto& rule : rules_) rule->before_norm(step_, tensors);
  const GradientStats stats = gradient_stats(share_);
  own.square_sum = stats.square_sum;
  outcome.agreed = control_.agree(own);
  outcome.grad_norm = std::sqrt(outcome.agreed.square_sum);
  outcome.applied = std::isfinite(outcome.agreed.square_sum);
  phase_ = "optimizer's step";
  if (outcome.applied) {
    std::vector<torch::Tensor> before;
    if (outcome.agreed.log_layers) before = copy_weights(share_);
    update(outcome, tensors);
    if (outcome.agreed.log_layers) {
      outcome.layers = layer_norms(model_.parameters, share_, stats, before, *grid_.world);
    }
  } else {
    outcome.not_finite = find_nonfinite(outcome, stats);
    restore_moving_state(moving_.size());
    ++nonfinite_in_row_;
    ++skipped_steps_;
  }
  ++step_;
  return outcome;
}

void Session::save_moving_state() {
  for (size_t i = saved_.size(); i < moving_.size(); ++i)
    saved_.push_back(at::empty_like(moving_[i]));
  if (!moving_.empty()) at::_foreach_copy_(saved_, moving_);
}

void Session::restore_moving_state(size_t count) {
  for (size_t i = 0; i < count; ++i) moving_[i].copy_(saved_[i]);
}

void Session::run_micro_steps(StepOutcome& outcome) {
  outcome.loss = torch::zeros({}, torch::TensorOptions(torch::kFloat64).device(grid_.device));
  for (int64_t micro = 0; micro < recipe_.train.accumulate; ++micro) {
    phase_ = "next batch";
    Batch batch = loader_.next();
    batch.context.step = step_;
    outcome.data_wait_seconds += batch.wait_s;
    phase_ = "forward pass";
    const TrainOutput output = model_.task->train(batch);
    if (recipe_.parallel.overlap_gradients && micro + 1 == recipe_.train.accumulate) {
      sync_.start_with_backward();
    }
    phase_ = "backward pass";
    // One, but not a number where the loss is not finite: then no gradient is, and the step is
    // skipped without the host having to look at the loss.
    output.loss.backward(output.loss.detach() * 0 + 1);
    outcome.loss += output.loss.detach().to(torch::kFloat64);
    add(outcome.moe, output.moe);
  }
}

void Session::update(const StepOutcome& outcome, StepTensors& tensors) {
  nonfinite_in_row_ = 0;
  const auto replaces = [&](const auto& rule) { return rule->replaces_update(step_); };
  if (!std::ranges::any_of(rules_, replaces)) {
    clip(outcome.grad_norm);
    optimizer_->step(outcome.lr);
    if (shards_) shards_->gather_weights();
  }
  for (const auto& rule : rules_) rule->after_update(step_, tensors);
  restore_moving_state(num_frozen_);
}

std::string Session::find_nonfinite(const StepOutcome& outcome, const GradientStats& stats) const {
  const std::string gradient = first_nonfinite(stats, *grid_.world);
  const torch::Tensor is_bad = outcome.loss.isfinite().logical_not().to(torch::kCPU, torch::kInt64);
  all_reduce(*grid_.world, is_bad.view({1}), ReduceOp::kMax);
  if (is_bad.item<int64_t>() != 0) return "the loss";
  return gradient.empty() ? "the norm of all gradients" : "the gradient of " + gradient;
}

void Session::clip(double l2_norm) {
  const TrainOptions& train = recipe_.train;
  if (train.clip_norm == 0.0) return;
  const bool by_largest = train.clip_norm_type == NormType::kInf;
  const double norm = by_largest ? global_max_norm(share_, *grid_.world) : l2_norm;
  const double factor = clip_factor(norm, train.clip_norm);
  if (factor != 1.0) sync_.scale(factor);
}

std::optional<double> Session::exchange_wait_seconds() const {
  if (grid_.device.is_cuda()) return std::nullopt;
  double seconds = 0.0;
  for (const auto* group : {&grid_.expert, &grid_.intra_node, &grid_.inter_node}) {
    if (*group) seconds += (*group)->counters().wait_seconds;
  }
  return seconds;
}

void Session::visit_state(StateVisitor& visitor) {
  weights_of(model_).visit_state(visitor);
  optimizer_->visit_state(visitor);
  model_.task->visit_state(visitor);
  loader_.visit_state(visitor);
  // The data trained on now are saved, whatever was loaded.
  std::string fingerprint = train_data_.fingerprint, tokenizer = train_data_.tokenizer;
  if (!fingerprint.empty()) visitor.text(kDataFingerprint, fingerprint);
  if (!tokenizer.empty()) visitor.text(kDataTokenizer, tokenizer);
  for (const auto& rule : rules_) rule->visit_state(visitor);
  visitor.integer("trainer.step", step_);
  visitor.integer("trainer.nonfinite_in_row", nonfinite_in_row_);
  visitor.integer("trainer.skipped_steps", skipped_steps_);
  if (!recipe_.train.patience) return;
  visitor.real("trainer.patience.best", scores_.best);
  visitor.integer("trainer.patience.best_step", scores_.best_step);
  visitor.integer("trainer.patience.last_step", scores_.last_step);
  visitor.integer("trainer.patience.without_better", scores_.without_better);
}

void Session::add_score(double score) {
  if (step_ == scores_.last_step) return;
  const bool is_better = scores_.best_step == 0 || score > scores_.best;
  scores_.last_step = step_;
  ++scores_.without_better;
  if (std::isfinite(score) && is_better) scores_ = {score, step_, step_, 0};
}

void Session::fit_to(const SavedNames& saved) {
  weights_of(model_).fit_to(saved);
  for (const auto& rule : rules_) rule->fit_to(saved);
}

void Session::tensors_loaded() {
  optimizer_->tensors_loaded();  // collective; the others may throw on this rank alone
  weights_of(model_).tensors_loaded();
  weights_loaded();
}

void Session::weights_loaded() {
  for (const auto& rule : rules_) rule->tensors_loaded();
}

std::vector<std::shared_ptr<void>> Session::lend_weights() const {
  std::vector<std::shared_ptr<void>> lent;
  for (const auto& rule : rules_) lent.push_back(rule->lend_weights());
  return lent;
}

}  // namespace shoal
