#include "models/hspmn/token_gate.h"

#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/nonzero_static.h>

#include <algorithm>
#include <cmath>

#include "runtime/device/device_copy.h"
#include "runtime/device/real_types.h"
#include "runtime/random/random.h"

// b sequences on this rank  S tokens  D width  R tokens that attend, of all sequences
namespace shoal {
namespace {

constexpr double kLeastTemperature = 0.1, kMostTemperature = 2.0;
constexpr double kSureLogit = 30.0;  // whose sigma is 1 but for 1e-13
constexpr int64_t kParts = TokenGateImpl::kPositionBins;

/// Indices into the counts, after the histograms.
enum Count : int64_t {
  kCountedTokens,
  kOpenTokens,
  kDroppedTokens,
  kSumOfProbabilities,
  kSumOfEntropies,
  kNumCounts
};

int64_t histogram_size(bool has_threshold) { return has_threshold ? 2 * LogitHistogram::kBins : 0; }

/// Columns of a GateState.
enum StateColumn : int64_t { kBlockIsOpen, kNumAttended };

torch::Tensor sum_of(const torch::Tensor& mask) { return mask.sum(torch::kFloat64).view(1); }

/// Mask of tokens that are not padding; all true without padding.
torch::Tensor tokens_of(const GateInput& input) {
  return input.is_token_bS.defined() ? input.is_token_bS
                                     : torch::ones_like(input.position_bS, torch::kBool);
}

/// Index of the first token of each token's block; negative if it was in an earlier call.
torch::Tensor first_of_block(const torch::Tensor& position_bS, int64_t block) {
  return torch::arange(position_bS.size(1), position_bS.options()) - position_bS.remainder(block);
}

}  // namespace

/// All of [b, S].
struct TokenGateImpl::Decision {
  torch::Tensor logits;        ///< differentiable
  torch::Tensor noisy_logits;  ///< what is compared with the threshold; differentiable
  torch::Tensor is_token, is_anchor;
  torch::Tensor is_counted;       ///< tokens beside the anchors
  torch::Tensor is_open;          ///< with the anchors
  torch::Tensor num_attended;     ///< of a sequence up to each token, anchors left out
  torch::Tensor block_is_open;    ///< before anchors and capacity
  torch::Tensor soft = {};        ///< undefined unless training, and at random
  torch::Tensor is_dropped = {};  ///< open, and without room; undefined: none
  torch::Tensor is_best = {};     ///< among the top k; undefined unless it was asked for
};

TokenGateImpl::TokenGateImpl(const GateOptions& options, int64_t width, int64_t context,
                             const std::string& path, const BuildContext& build)
    : options_(options),
      context_(context),
      path_(path),
      grid_(build.grid),
      device_(build.tensor_options.device()) {
  if (is_random()) return;
  const torch::TensorOptions& tensor = build.tensor_options;
  const Init weight = Init::normal(1.0 / std::sqrt(static_cast<double>(width)));
  weight_D_ = add_parameter("weight", {width}, tensor, weight);
  bias_ = add_parameter("bias", {1}, tensor, Init::zeros());
  if (options.temperature == GateTemperature::kLearned) {
    log_temperature_ = add_parameter("log_temperature", {1}, tensor, Init::zeros());
  }
  if (options.select == GateSelection::kPredictor) {
    predictor_weight_D_ = add_parameter("predictor_weight", {width}, tensor, weight);
    predictor_bias_ = add_parameter("predictor_bias", {1}, tensor, Init::zeros());
  }
  if (has_threshold()) {
    threshold_ = add_buffer("threshold", {1}, tensor, Init::zeros());
    noisy_threshold_ = add_buffer("noisy_threshold", {1}, tensor, Init::zeros());
    num_updates_ = add_buffer("num_updates", {1}, tensor, Init::zeros());
  }
}

double TokenGateImpl::rate_at(const StepContext& step) const {
  return step.training ? options_.rate_at(step.step) : options_.rate;
}

torch::Tensor TokenGateImpl::of_block(const torch::Tensor& value_bS, const GateInput& input) const {
  if (options_.block == 1) return value_bS;
  return value_bS.gather(1, first_of_block(input.position_bS, options_.block).clamp_min(0));
}

torch::Tensor TokenGateImpl::logits_of(const GateInput& input) const {
  if (!is_random()) {
    return of_block(at::linear(at_least_float32(input.u_bSD), weight_D_) + bias_, input);
  }
  // For the report: the logit that corresponds to the draws.
  const double rate = rate_at(input.step);
  const double logit = std::min(std::log(rate / (1.0 - rate)), kSureLogit);
  return torch::full_like(input.position_bS, logit, torch::kFloat32);
}

torch::Tensor TokenGateImpl::predictor_logits(const GateInput& input) const {
  const torch::Tensor u_bSD = at_least_float32(input.u_bSD.detach());
  return of_block(at::linear(u_bSD, predictor_weight_D_) + predictor_bias_, input);
}

torch::Tensor TokenGateImpl::noise_of(const GateInput& input) const {
  const StepContext& step = input.step;
  if (!step.training || is_random() || options_.noise == GateNoise::kNone) return {};
  const Stream stream{step.seed, Purpose::kRouterNoise, hash_name(path_),
                      static_cast<uint64_t>(step.step)};
  const at::IntArrayRef sizes = input.position_bS.sizes();
  const torch::Tensor draw =
      gumbel_rows(stream, row_ids(step, sizes[1]), 2, weight_D_.scalar_type());
  const torch::Tensor noise = options_.noise == GateNoise::kGumbel
                                  ? draw.select(1, 0)
                                  : draw.select(1, 0) - draw.select(1, 1);
  return of_block(noise.view(sizes), input);
}

torch::Tensor TokenGateImpl::soft_gates(const Decision& decision,
                                        const torch::Tensor& noise) const {
  torch::Tensor shifted = decision.logits, temperature;
  if (has_threshold()) shifted = shifted - noisy_threshold_;
  if (log_temperature_.defined()) {
    temperature = log_temperature_.exp().clamp(kLeastTemperature, kMostTemperature);
  }
  return soft_gate(shifted, noise, temperature);
}

torch::Tensor TokenGateImpl::top_k(const Decision& decision, const GateInput& input) const {
  // Ranks blocks by the logits of their first tokens, ties by position; other tokens come last.
  const torch::Tensor is_ranked =
      decision.is_token & (input.position_bS.remainder(options_.block) == 0);
  const torch::Tensor score = decision.noisy_logits.detach().masked_fill(~is_ranked, -INFINITY);
  const torch::Tensor order =
      std::get<1>(score.sort(/*stable=*/true, /*dim=*/1, /*descending=*/true));
  const torch::Tensor place = torch::empty_like(order).scatter_(
      1, order, torch::arange(order.size(1), order.options()).expand_as(order));
  const torch::Tensor ranked_b1 = is_ranked.sum(1, /*keepdim=*/true);
  // Products such as 0.29 x 100 are rounded slightly below the exact integer.
  const torch::Tensor k_b1 =
      (ranked_b1.to(torch::kFloat64) * rate_at(input.step) + 1e-9).floor().clamp_min(1.0);
  return of_block((place < k_b1) & is_ranked, input);
}

torch::Tensor TokenGateImpl::draw_random(const GateInput& input) const {
  // Keyed by token id and position, so that draws are equal in a batch and in decoding.
  constexpr int64_t kMostTokens = int64_t{1} << 32;
  TORCH_CHECK(input.step.token_bS.defined(), "a random gate needs token ids");
  const torch::Tensor id = input.position_bS * kMostTokens + input.step.token_bS;
  const Stream stream{input.step.seed, Purpose::kRouting, hash_name(path_), 0};
  const torch::Tensor draw = uniform_rows(stream, id.flatten(), 1, torch::kFloat64);
  return of_block((draw < rate_at(input.step)).view_as(id), input);
}

torch::Tensor TokenGateImpl::choose(const Decision& decision, const GateInput& input) const {
  const bool training = input.step.training;
  switch (options_.select) {
    case GateSelection::kThreshold:
      return decision.noisy_logits > (training ? noisy_threshold_ : threshold_);
    case GateSelection::kTopK:
      return top_k(decision, input);
    case GateSelection::kPredictor:
      return training ? decision.is_best : predictor_logits(input) > 0;
    case GateSelection::kRandom:
      return draw_random(input);
  }
  TORCH_CHECK(false, "no such selection of tokens");
}

TokenGateImpl::Decision TokenGateImpl::decide(const GateInput& input) const {
  const StepContext& step = input.step;
  Decision decision;
  decision.logits = logits_of(input);
  const torch::Tensor noise = noise_of(input);
  decision.noisy_logits = noise.defined() ? decision.logits + noise : decision.logits;
  decision.is_token = tokens_of(input);
  const int64_t every = options_.anchor_every;
  decision.is_anchor = every > 0 ? (input.position_bS.remainder(every) == 0) & decision.is_token
                                 : torch::zeros_like(decision.is_token);
  decision.is_counted = decision.is_token & ~decision.is_anchor;
  if (options_.select == GateSelection::kPredictor && step.training) {
    decision.is_best = top_k(decision, input);
  }
  decision.block_is_open = choose(decision, input);
  if (input.state.defined()) {
    const torch::Tensor held_b1 = input.state.narrow(1, kBlockIsOpen, 1).to(torch::kBool);
    const torch::Tensor is_held = first_of_block(input.position_bS, options_.block) < 0;
    decision.block_is_open = torch::where(is_held, held_b1, decision.block_is_open);
  }
  if (step.training && !is_random()) decision.soft = soft_gates(decision, noise);
  apply_capacity(decision, input);
  return decision;
}

void TokenGateImpl::apply_capacity(Decision& decision, const GateInput& input) const {
  const torch::Tensor chosen = decision.block_is_open & decision.is_counted;
  decision.num_attended = chosen.to(torch::kInt64).cumsum(1);
  if (input.state.defined()) {
    decision.num_attended = decision.num_attended + input.state.narrow(1, kNumAttended, 1);
  }
  torch::Tensor kept = chosen;
  if (const std::optional<int64_t> most = options_.most_in(context_, rate_at(input.step))) {
    kept = chosen & (decision.num_attended <= *most);
    decision.is_dropped = chosen & ~kept;
  }
  decision.is_open = kept | decision.is_anchor;
}

void TokenGateImpl::remember(const Decision& decision, const GateState& state) const {
  if (decision.is_token.size(1) == 0) return;
  // At the last token that is not padding.
  const torch::Tensor last_b1 = (decision.is_token.sum(1, /*keepdim=*/true) - 1).clamp_min(0);
  const torch::Tensor next_b2 =
      torch::cat({decision.block_is_open.gather(1, last_b1).to(torch::kInt64),
                  decision.num_attended.narrow(1, -1, 1)},
                 /*dim=*/1);
  const torch::Tensor has_tokens_b1 = decision.is_token.any(1, /*keepdim=*/true);
  state.copy_(torch::where(has_tokens_b1, next_b2, state));
}

torch::Tensor TokenGateImpl::explored(const Decision& decision, const GateInput& input) const {
  const StepContext& step = input.step;
  const Stream stream{step.seed, Purpose::kRouterNoise, hash_name(path_ + ".explore"),
                      static_cast<uint64_t>(step.step)};
  const torch::Tensor draw =
      uniform_rows(stream, row_ids(step, decision.is_open.size(1)), 1, torch::kFloat32);
  return (draw.view_as(decision.is_open) < options_.explore_fraction) & ~decision.is_open &
         decision.is_token;
}

torch::Tensor TokenGateImpl::losses(const Decision& decision, const GateSums& sums,
                                    const GateInput& input) const {
  const StepContext& step = input.step;
  TORCH_CHECK(step.samples_in_step > 0, "a gate's losses need StepContext::samples_in_step");
  const torch::Tensor all_2 = torch::stack({sums.probability.detach(), sums.count});
  all_reduce(grid_->tensor_world(), all_2);
  torch::Tensor loss =
      gate_loss(sums, all_2, rate_at(step), {options_.rate_weight, options_.entropy_weight});
  if (options_.select == GateSelection::kPredictor) {
    const torch::Tensor logits = predictor_logits(input);
    const torch::Tensor miss = at::binary_cross_entropy_with_logits(
        logits, decision.is_best.to(logits.scalar_type()),
        decision.is_counted.to(logits.scalar_type()), {}, at::Reduction::Sum);
    loss = loss + miss * options_.predictor_weight / all_2[1].clamp_min(1.0);
  }
  return (loss *
          (static_cast<double>(step.samples_in_micro) / static_cast<double>(step.samples_in_step)))
      .to(decision.logits.scalar_type());
}

void TokenGateImpl::count(const Decision& decision, const GateSums& sums, const GateInput& input) {
  // With train.recompute, only the second run counts, which has gradients.
  if (!at::GradMode::is_enabled()) return;
  const torch::NoGradGuard no_grad;
  const torch::Tensor is_open = decision.is_open & decision.is_counted;
  std::vector<torch::Tensor> parts;
  if (has_threshold()) {
    parts.push_back(LogitHistogram::count(decision.logits, decision.is_counted));
    parts.push_back(LogitHistogram::count(decision.noisy_logits, decision.is_counted));
  }
  parts.push_back(sums.count.view(1));
  parts.push_back(sum_of(is_open));
  parts.push_back(decision.is_dropped.defined() ? sum_of(decision.is_dropped)
                                                : torch::zeros_like(parts.back()));
  parts.push_back(sums.probability.detach().view(1));
  parts.push_back(sums.entropy.detach().view(1));
  const torch::Tensor part_n = (input.position_bS * kParts).floor_divide(context_).flatten();
  for (const torch::Tensor& mask : {decision.is_counted, is_open}) {
    const torch::Tensor one_n = mask.flatten().to(torch::kFloat64);
    parts.push_back(torch::zeros({kParts}, one_n.options()).scatter_add_(0, part_n, one_n));
  }
  const torch::Tensor counts = torch::cat(parts);
  if (counted_step_ != input.step.step) {
    counts_ = torch::zeros_like(counts);
    counted_step_ = input.step.step;
  }
  counts_ += counts;
}

torch::Tensor TokenGateImpl::weights(const Decision& decision, const torch::Tensor& row_R) const {
  if (is_random()) return {};
  const torch::Tensor weight = torch::where(decision.is_anchor, torch::ones_like(decision.soft),
                                            straight_through(decision.soft, decision.is_open));
  return weight.flatten().index_select(0, row_R);
}

OpenTokens TokenGateImpl::open(const GateInput& input) {
  TORCH_CHECK(input.position_bS.size(1) <= context_, path_, ": ", input.position_bS.size(1),
              " tokens, expected at most ", context_);
  const Decision decision = decide(input);
  if (input.state.defined()) remember(decision, input.state);
  OpenTokens open;
  open.is_open_bS = decision.is_open;
  torch::Tensor is_computed = decision.is_open;
  if (input.step.training) {
    const GateSums sums = sum_gates(decision.logits, decision.is_counted);
    count(decision, sums, input);
    if (!is_random()) {
      open.auxiliary_loss = losses(decision, sums, input);
      if (options_.explore_fraction > 0) is_computed = is_computed | explored(decision, input);
    }
  }
  // The only wait for a GPU: since the number of rows is known, listing them needs none.
  const torch::Tensor end_b = HostCopy(is_computed.sum(1).cumsum(0)).wait();
  const int64_t* end = end_b.const_data_ptr<int64_t>();
  open.offset_b1.assign(1, 0);
  open.offset_b1.insert(open.offset_b1.end(), end, end + end_b.numel());
  open.row_R = at::nonzero_static(is_computed.flatten(), open.offset_b1.back()).squeeze(1);
  if (input.step.training) open.weight_R = weights(decision, open.row_R);
  return open;
}

GateState TokenGateImpl::make_state(int64_t b) const {
  return torch::zeros({b, 2}, torch::TensorOptions().dtype(torch::kInt64).device(device_));
}

void TokenGateImpl::update_threshold(torch::Tensor& threshold, const torch::Tensor& counts) const {
  const torch::Tensor quantile =
      LogitHistogram::quantile(counts, 1.0 - options_.rate_at(counted_step_));
  const torch::Tensor decay = (num_updates_ > 0).to(torch::kFloat64) * options_.threshold_decay;
  const torch::Tensor moved = decay * threshold + (1.0 - decay) * quantile;
  threshold.copy_(torch::where(counts.sum() > 0, moved, threshold.to(torch::kFloat64)));
}

void TokenGateImpl::after_step() {
  TORCH_CHECK(counts_.defined(), path_, ": after_step without a training step");
  const torch::NoGradGuard no_grad;
  all_reduce(grid_->tensor_world(), counts_);
  if (has_threshold()) {
    update_threshold(threshold_, counts_.narrow(0, 0, LogitHistogram::kBins));
    update_threshold(noisy_threshold_,
                     counts_.narrow(0, LogitHistogram::kBins, LogitHistogram::kBins));
    num_updates_ += 1;
  }
  reported_ = counts_.narrow(0, histogram_size(has_threshold()), kNumCounts + 2 * kParts);
  reported_step_ = counted_step_;
  counts_.reset();
  counted_step_ = -1;
}

std::optional<GateReport> TokenGateImpl::report() const {
  if (!reported_.defined()) return std::nullopt;
  const torch::Tensor host = reported_.to(torch::kCPU).contiguous();
  const double* count = host.const_data_ptr<double>();
  const auto share = [](double part, double whole) { return whole > 0 ? part / whole : 0.0; };
  const double tokens = count[kCountedTokens];
  GateReport report{.layer = path_, .target = options_.rate_at(reported_step_)};
  report.rate = share(count[kOpenTokens], tokens);
  report.probability = share(count[kSumOfProbabilities], tokens);
  report.entropy = share(count[kSumOfEntropies], tokens);
  report.dropped = share(count[kDroppedTokens], tokens);
  if (threshold_.defined()) report.threshold = threshold_.item<double>();
  for (int64_t part = 0; part < kParts; ++part) {
    report.rate_by_position.push_back(
        share(count[kNumCounts + kParts + part], count[kNumCounts + part]));
  }
  return report;
}

double TokenGateImpl::open_tokens(int64_t tokens) const {
  const auto all = static_cast<double>(tokens);
  const auto anchors = static_cast<double>(options_.anchors_in(tokens));
  double open = anchors + options_.rate * (all - anchors);
  if (const std::optional<int64_t> most = options_.most_in(context_, options_.rate)) {
    open = std::min(open, anchors + static_cast<double>(*most));
  }
  return open + (is_random() ? 0 : options_.explore_fraction * (all - open));
}

}  // namespace shoal
