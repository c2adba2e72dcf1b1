#include "models/hspmn/token_gate.h"

#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/linear.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/hspmn/gate_threshold.h"
#include "parallel/comm/collectives.h"
#include "runtime/device/real_types.h"
#include "runtime/random/random.h"

// b sequences on this rank  S tokens  D width  R tokens that attend, of all sequences
namespace shoal {
namespace {

constexpr double kLeastTemperature = 0.1, kMostTemperature = 2.0;
constexpr int64_t kParts = TokenGateImpl::kPositionBins;

/// Places in the counts, after the histograms.
enum Count : int64_t {
  kCountedTokens,
  kOpenTokens,
  kDroppedTokens,
  kSumOfProbabilities,
  kSumOfEntropies,
  kNumCounts
};

int64_t histogram_size(bool has_threshold) { return has_threshold ? 2 * LogitHistogram::kBins : 0; }

torch::Tensor sum_of(const torch::Tensor& values) {
  return values.sum().to(torch::kFloat64).view(1);
}

/// The mask of tokens that are no padding, all true where there is no padding.
torch::Tensor tokens_of(const GateInput& input) {
  return input.is_token_bS.defined() ? input.is_token_bS
                                     : torch::ones_like(input.position_bS, torch::kBool);
}

}  // namespace

void GateOptions::validate(Problems& problems) const {
  if (first_rate < rate) {
    problems.add("first_rate", fmt::format("{} is below gate.rate: {}", first_rate, rate));
  }
  if (capacity && select != GateSelection::kThreshold) {
    problems.add("capacity", "needs select: threshold; the others choose by number");
  }
}

void GateOptions::check(const std::string& path, int64_t context, bool is_causal,
                        Problems& problems) const {
  if (select == GateSelection::kTopK && is_causal) {
    problems.add(path + ".select",
                 "topk compares a token with later ones, which a causal model must not see; use "
                 "threshold or topk_predictor, or model.causal=false for classification");
  }
  if (!capacity) return;
  const auto most =
      static_cast<int64_t>(std::ceil(*capacity * rate * static_cast<double>(context)));
  const int64_t anchors = anchors_in(context);
  if (most < anchors) {
    problems.add(
        path + ".capacity",
        fmt::format("{} of {} tokens may attend, but one every {} is an anchor, {} in all; "
                    "raise capacity or anchor_every",
                    most, context, anchor_every, anchors));
  }
}

std::optional<int64_t> GateOptions::most_in(int64_t context) const {
  if (!capacity) return std::nullopt;
  return static_cast<int64_t>(std::ceil(*capacity * rate * static_cast<double>(context))) -
         anchors_in(context);
}

/// All of [b, S].
struct TokenGateImpl::Decision {
  torch::Tensor logits;        ///< differentiable
  torch::Tensor noisy_logits;  ///< what is compared with the threshold; differentiable
  torch::Tensor is_token, is_anchor;
  torch::Tensor is_open;          ///< with the anchors
  torch::Tensor soft;             ///< of the block's first token; undefined unless training
  torch::Tensor is_dropped = {};  ///< open, and without room; undefined: none
  torch::Tensor is_best = {};     ///< among the top k; undefined unless it was asked for
  torch::Tensor is_counted() const { return is_token & ~is_anchor; }
};

TokenGateImpl::TokenGateImpl(const GateOptions& options, int64_t width, int64_t context,
                             const std::string& path, const BuildContext& build)
    : options_(options),
      annealing_{options.first_rate, options.rate, options.anneal_steps},
      context_(context),
      path_(path),
      grid_(build.grid) {
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
  return step.training ? annealing_.at(step.step) : options_.rate;
}

torch::Tensor TokenGateImpl::noise_of(const GateInput& input) const {
  const StepContext& step = input.step;
  if (!step.training || options_.noise == GateNoise::kNone) return {};
  const Stream stream{step.seed, Purpose::kRouterNoise, hash_name(path_),
                      static_cast<uint64_t>(step.step)};
  const at::IntArrayRef sizes = input.position_bS.sizes();
  const torch::Tensor draw =
      gumbel_rows(stream, row_ids(step, sizes[1]), 2, weight_D_.scalar_type());
  const torch::Tensor noise = options_.noise == GateNoise::kGumbel
                                  ? draw.select(1, 0)
                                  : draw.select(1, 0) - draw.select(1, 1);
  return noise.view(sizes);
}

torch::Tensor TokenGateImpl::top_k(const Decision& decision, double rate) const {
  // Padding comes last; of equals the earlier token first.
  const torch::Tensor score =
      decision.noisy_logits.detach().masked_fill(~decision.is_token, -INFINITY);
  const torch::Tensor order =
      std::get<1>(score.sort(/*stable=*/true, /*dim=*/1, /*descending=*/true));
  const torch::Tensor place = torch::empty_like(order).scatter_(
      1, order, torch::arange(order.size(1), order.options()).expand_as(order));
  const torch::Tensor tokens_b1 = decision.is_token.sum(1, /*keepdim=*/true);
  const torch::Tensor k_b1 = (tokens_b1.to(torch::kFloat64) * rate).floor().clamp_min(1.0);
  return (place < k_b1) & decision.is_token;
}

torch::Tensor TokenGateImpl::draw_random(const GateInput& input, double rate) const {
  // By what the token itself is, so that it is drawn alike in a batch and while decoding.
  constexpr int64_t kMostTokens = int64_t{1} << 32;
  TORCH_CHECK(input.step.token_bS.defined(), "a random gate needs token ids");
  const torch::Tensor id = input.position_bS * kMostTokens + input.step.token_bS;
  const Stream stream{input.step.seed, Purpose::kRouting, hash_name(path_), 0};
  return (uniform_rows(stream, id.flatten(), 1, torch::kFloat64) < rate).view_as(id);
}

torch::Tensor TokenGateImpl::predictor_logits(const GateInput& input) const {
  return at::linear(at_least_float32(input.u_bSD.detach()), predictor_weight_D_) + predictor_bias_;
}

torch::Tensor TokenGateImpl::choose(const Decision& decision, const GateInput& input) const {
  const StepContext& step = input.step;
  switch (options_.select) {
    case GateSelection::kThreshold:
      return decision.noisy_logits > (step.training ? noisy_threshold_ : threshold_);
    case GateSelection::kTopK:
      return top_k(decision, rate_at(step));
    case GateSelection::kPredictor:
      return step.training ? decision.is_best : predictor_logits(input) > 0;
    default:
      return draw_random(input, rate_at(step));
  }
}

torch::Tensor TokenGateImpl::of_block(const torch::Tensor& value_bS, const GateInput& input) const {
  if (options_.block == 1) return value_bS;
  const torch::Tensor s = torch::arange(value_bS.size(1), input.position_bS.options());
  const torch::Tensor first_bS = s - input.position_bS.remainder(options_.block);
  const torch::Tensor value = value_bS.gather(1, first_bS.clamp_min(0));
  if (!input.state.defined()) return value;
  const torch::Tensor held_b1 = input.state.narrow(1, 0, 1).to(value.scalar_type());
  return torch::where(first_bS < 0, held_b1, value);
}

TokenGateImpl::Decision TokenGateImpl::decide(const GateInput& input) const {
  const StepContext& step = input.step;
  Decision decision;
  decision.logits = at::linear(at_least_float32(input.u_bSD), weight_D_) + bias_;
  const torch::Tensor noise = noise_of(input);
  decision.noisy_logits = noise.defined() ? decision.logits + noise : decision.logits;
  decision.is_token = tokens_of(input);
  const int64_t every = options_.anchor_every;
  decision.is_anchor = every > 0 ? (input.position_bS.remainder(every) == 0) & decision.is_token
                                 : torch::zeros_like(decision.is_token);
  if (options_.select == GateSelection::kPredictor && step.training) {
    decision.is_best = top_k(decision, rate_at(step));
  }
  decision.is_open = of_block(choose(decision, input), input);
  if (step.training) {
    torch::Tensor shifted = decision.logits;
    if (has_threshold()) shifted = shifted - noisy_threshold_;
    const torch::Tensor temperature =
        log_temperature_.defined()
            ? log_temperature_.exp().clamp(kLeastTemperature, kMostTemperature)
            : torch::Tensor();
    decision.soft = of_block(soft_gate(shifted, noise, temperature), input);
  }
  limit(decision, input);
  return decision;
}

void TokenGateImpl::limit(Decision& decision, const GateInput& input) const {
  const torch::Tensor chosen = decision.is_open & decision.is_token;
  const torch::Tensor counted = chosen & ~decision.is_anchor;
  torch::Tensor kept = counted;
  torch::Tensor until = counted.to(torch::kInt64).cumsum(1);
  if (input.state.defined()) until = until + input.state.narrow(1, 1, 1);
  if (const std::optional<int64_t> most = options_.most_in(context_)) {
    kept = counted & (until <= *most);
    decision.is_dropped = counted & ~kept;
  }
  if (input.state.defined() && until.size(1) > 0) {
    // Of the last token: padding behind it changes neither.
    const torch::Tensor last_b1 = (decision.is_token.sum(1, /*keepdim=*/true) - 1).clamp_min(0);
    const torch::Tensor has_tokens = decision.is_token.any(1);
    const torch::Tensor next = torch::stack(
        {decision.is_open.gather(1, last_b1).squeeze(1).to(torch::kInt64), until.select(1, -1)}, 1);
    input.state.copy_(torch::where(has_tokens.unsqueeze(1), next, input.state));
  }
  decision.is_open = kept | decision.is_anchor;
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

torch::Tensor TokenGateImpl::losses(const Decision& decision, const GateInput& input) const {
  const StepContext& step = input.step;
  TORCH_CHECK(step.samples_in_step > 0, "a gate's losses need StepContext::samples_in_step");
  const torch::Tensor is_counted = decision.is_counted();
  const torch::Tensor logit_n = decision.logits.masked_select(is_counted);
  const torch::Tensor all_2 =
      torch::cat({sum_of(at::sigmoid(logit_n.detach())), sum_of(is_counted)});
  all_reduce(*grid_->world, all_2);
  torch::Tensor loss =
      gate_loss(logit_n, all_2, rate_at(step), {options_.rate_weight, options_.entropy_weight});
  if (options_.select == GateSelection::kPredictor) {
    const torch::Tensor miss = at::binary_cross_entropy_with_logits(
        predictor_logits(input).masked_select(is_counted),
        decision.is_best.masked_select(is_counted).to(loss.scalar_type()), {}, {},
        at::Reduction::Sum);
    loss =
        loss + (miss * options_.predictor_weight / all_2[1].clamp_min(1.0)).to(loss.scalar_type());
  }
  return loss *
         (static_cast<double>(step.samples_in_micro) / static_cast<double>(step.samples_in_step));
}

void TokenGateImpl::count(const Decision& decision, const GateInput& input) {
  // With train.recompute in the second of both runs, which has gradients.
  if (!at::GradMode::is_enabled()) return;
  const torch::NoGradGuard no_grad;
  const torch::Tensor is_counted = decision.is_counted();
  const torch::Tensor is_open = decision.is_open & is_counted;
  std::vector<torch::Tensor> parts;
  const torch::Tensor logit_n = decision.logits.masked_select(is_counted);
  if (has_threshold()) {
    parts.push_back(LogitHistogram::count(logit_n));
    parts.push_back(LogitHistogram::count(decision.noisy_logits.masked_select(is_counted)));
  }
  const torch::Tensor none = torch::zeros({1}, logit_n.options().dtype(torch::kFloat64));
  parts.push_back(sum_of(is_counted));
  parts.push_back(sum_of(is_open));
  parts.push_back(decision.is_dropped.defined() ? sum_of(decision.is_dropped) : none);
  parts.push_back(sum_of(at::sigmoid(logit_n)));
  parts.push_back(sum_of(binary_entropy(logit_n)));
  const torch::Tensor part_bS = (input.position_bS * kParts).floor_divide(context_);
  for (const torch::Tensor& mask : {is_counted, is_open}) {
    parts.push_back(at::bincount(part_bS.masked_select(mask), {}, kParts).to(torch::kFloat64));
  }
  const torch::Tensor counts = torch::cat(parts);
  if (counted_step_ != input.step.step) {
    counts_ = torch::zeros_like(counts);
    counted_step_ = input.step.step;
  }
  counts_ += counts;
}

OpenTokens TokenGateImpl::open(const GateInput& input) {
  const bool training = input.step.training;
  const Decision decision = decide(input);
  OpenTokens open;
  open.is_open_bS = decision.is_open;
  torch::Tensor is_computed = decision.is_open;
  if (training) {
    open.auxiliary_loss = losses(decision, input);
    count(decision, input);
    if (options_.explore_fraction > 0) is_computed = is_computed | explored(decision, input);
  }
  open.row_R = is_computed.flatten().nonzero().squeeze(1);
  const torch::Tensor end_b = is_computed.sum(1).cumsum(0).to(torch::kCPU);
  const int64_t* end = end_b.const_data_ptr<int64_t>();
  open.offset_b1.assign(1, 0);
  open.offset_b1.insert(open.offset_b1.end(), end, end + end_b.numel());
  if (training && options_.select != GateSelection::kRandom) {
    const torch::Tensor weight = torch::where(decision.is_anchor, torch::ones_like(decision.soft),
                                              straight_through(decision.soft, decision.is_open));
    open.weight_R = weight.flatten().index_select(0, open.row_R);
  } else if (training) {
    open.weight_R =
        decision.is_open.flatten().index_select(0, open.row_R).to(weight_D_.scalar_type());
  }
  return open;
}

GateState TokenGateImpl::make_state(int64_t b) const {
  return torch::zeros({b, 2}, weight_D_.options().dtype(torch::kInt64).requires_grad(false));
}

void TokenGateImpl::update(const torch::Tensor& threshold, const torch::Tensor& counts) const {
  const torch::Tensor quantile =
      LogitHistogram::quantile(counts, 1.0 - annealing_.at(counted_step_));
  const torch::Tensor decay = (num_updates_ > 0).to(torch::kFloat64) * options_.threshold_decay;
  const torch::Tensor moved = decay * threshold + (1.0 - decay) * quantile;
  threshold.copy_(torch::where(counts.sum() > 0, moved, threshold.to(torch::kFloat64)));
}

void TokenGateImpl::after_step() {
  TORCH_CHECK(counts_.defined(), path_, ": after_step without a training step");
  const torch::NoGradGuard no_grad;
  all_reduce(*grid_->world, counts_);
  if (has_threshold()) {
    update(threshold_, counts_.narrow(0, 0, LogitHistogram::kBins));
    update(noisy_threshold_, counts_.narrow(0, LogitHistogram::kBins, LogitHistogram::kBins));
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
  GateReport report{.layer = path_, .target = annealing_.at(reported_step_)};
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

}  // namespace shoal
