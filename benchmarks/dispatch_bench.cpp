// What moving rows costs of a MoE layer, on one rank and one thread.
#include <torch/csrc/autograd/autograd.h>

#include "benchmarks/moe_shapes.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/set_up.h"
#include "moe/exchange/dispatch.h"
#include "moe/experts/expert_bank.h"
#include "moe/moe_layer.h"
#include "moe/routers/top_k.h"
#include "parallel/comm/rank_grid.h"

// T tokens  D width  K choices per token  E experts  G groups  S tokens of a group  M = K S
// C capacity  R = E C rows
namespace shoal::bench::dispatch_bench {
namespace {

constexpr int64_t kTokensPerSample = 64;
constexpr int64_t kGroup = 8 * kTokensPerSample;  // tokens of a routing group
const Capacity kPadded{CapacityMode::kPadded, 1.25, 0, 1, CapacityOrder::kSlotMajor};

class Problem {
 public:
  explicit Problem(const MoeShape& shape) : shape_(shape), grid_(make_grid()) {
    MoeOptions options;
    options.router = {"top_k", ScoreOptions{shape.k, RouterNoise::kGaussian, {}}};
    options.experts = {"plain",
                       ExpertBank::Options{shape.experts, shape.hidden, Activation::kGelu, true}};
    options.losses = {Choice<BalanceLoss>("importance"), Choice<BalanceLoss>("load")};
    layer_ = std::make_shared<MoeLayer>(options, shape.width, "layer",
                                        BuildContext{&grid_, torch::kFloat32});
    initialise(parameters_of(*layer_, "layer"), 1);
    const int64_t samples = shape.tokens / kTokensPerSample;
    step_.training = true;
    step_.sample_b = torch::arange(samples);
    step_.samples_in_step = step_.samples_in_micro = samples;
    x_ = normal({samples, kTokensPerSample, shape.width}, 1).set_requires_grad(true);
    upstream_ = normal(x_.sizes(), 2);
    torch::NoGradGuard no_grad;
    const auto router = layer_->named_parameters()["router.weight"];
    routing_ = fixed_routing(x_TD().matmul(router));
  }

  void layer() {
    const MoeOutput output = layer_->forward(x_, step_);
    torch::autograd::backward({output.y_BRD, output.auxiliary_loss}, {upstream_, torch::ones({})});
    clear();
  }

  /// Capacity, rows to the experts and back, and their gradients; the experts pass rows through.
  void dispatch_and_combine() { backward(move_by_index(Capacity{})); }
  void padded() { backward(move_by_index(kPadded)); }
  void einsum() { backward(move_by_masks()); }

  /// Throws unless both ways give the same.
  void compare() const {
    const torch::NoGradGuard no_grad;
    const torch::Tensor by_index_TD = move_by_index(kPadded), by_masks_TD = move_by_masks();
    const double error = (by_index_TD - by_masks_TD).abs().max().item<double>();
    constexpr double kTolerance = 1e-5;  // values up to 5, each rounded a few times
    if (!(error < kTolerance)) throw std::runtime_error("the masks move other rows");
  }

 private:
  static RankGrid make_grid() { return make_rank_grid(make_self_communicator(), 1); }

  Routing fixed_routing(const torch::Tensor& logits) const {
    Routing routing;
    routing.num_units = logits.size(1);
    routing.logits_TU = routing.noisy_TU = logits;
    routing.prob_TU = logits.softmax(1);
    routing.choice_TK = routing.unit_TK = top_k(logits, shape_.k);
    routing.weight_TK = routing.prob_TU.gather(1, routing.choice_TK).set_requires_grad(true);
    routing.score_TK = routing.weight_TK.detach();
    for (int64_t first = 0; first <= shape_.tokens; first += kGroup) {
      routing.group_offsets.push_back(first);
    }
    return routing;
  }

  torch::Tensor x_TD() const { return x_.reshape({shape_.tokens, shape_.width}); }

  torch::Tensor move_by_index(const Capacity& capacity) const {
    const UnitPlacement placement = UnitPlacement::contiguous(shape_.experts, 1);
    const TokenAssignments assignments = apply_capacity(routing_, capacity);
    const PackedType type{torch::kFloat32, torch::kFloat32, shape_.width};
    const RowRoute route = start_routes({assignments}, placement, grid_, {}, {type}).wait().front();
    const Dispatched rows = dispatch(x_TD(), assignments.weight_A, route);
    return combine(rows.rows_RD * rows.weight_R.unsqueeze(1), route);
  }

  /// Products as in V-MoE and GShard, group by group, with masks [G, S, E, C]. The running count of
  /// one-hot choices, all first ones before all second ones, is the place in an expert's buffer.
  torch::Tensor move_by_masks() const {
    const int64_t num_groups = shape_.tokens / kGroup, num_choices = kGroup * shape_.k;
    const int64_t capacity = unit_capacity(num_choices, shape_.experts, kPadded);
    const torch::Tensor choice_GKS =
        routing_.unit_TK.view({num_groups, kGroup, shape_.k}).transpose(1, 2);
    const torch::Tensor one_hot_GME =
        torch::zeros({num_groups, num_choices, shape_.experts})
            .scatter_(2, choice_GKS.reshape({num_groups, num_choices, 1}), 1.0);
    const torch::Tensor place_GSE = (one_hot_GME.cumsum(1) * one_hot_GME - 1)
                                        .view({num_groups, shape_.k, kGroup, shape_.experts})
                                        .amax(1);  // a token chooses an expert at most once
    const torch::Tensor mask_GSEC =
        (place_GSE.unsqueeze(3) == torch::arange(capacity, torch::kFloat32)).to(torch::kFloat32);
    const torch::Tensor weight_GSE = torch::zeros({shape_.tokens, shape_.experts})
                                         .scatter(1, routing_.unit_TK, routing_.weight_TK)
                                         .view(place_GSE.sizes());
    const torch::Tensor combine_GSEC = mask_GSEC * weight_GSE.unsqueeze(3);
    const torch::Tensor x_GSD = x_.view({num_groups, kGroup, shape_.width});
    const torch::Tensor rows_GRD = mask_GSEC.flatten(2).transpose(1, 2).bmm(x_GSD);
    return combine_GSEC.flatten(2).bmm(rows_GRD).view({shape_.tokens, shape_.width});
  }

  void backward(const torch::Tensor& y_TD) {
    y_TD.backward(upstream_.view(y_TD.sizes()));
    clear();
  }

  void clear() {
    for (torch::Tensor parameter : layer_->parameters()) parameter.mutable_grad().reset();
    x_.mutable_grad().reset();
    routing_.weight_TK.mutable_grad().reset();
  }

  MoeShape shape_;
  RankGrid grid_;
  std::shared_ptr<MoeLayer> layer_;
  StepContext step_;
  torch::Tensor x_, upstream_;
  Routing routing_;
};

void measure(const MoeShape& shape, int64_t rounds, Report& report) {
  Problem problem(shape);
  problem.compare();
  const std::vector<Timing> timings =
      time_interleaved({{"layer", [&] { problem.layer(); }},
                        {"dispatch_and_combine", [&] { problem.dispatch_and_combine(); }},
                        {"padded", [&] { problem.padded(); }},
                        {"einsum", [&] { problem.einsum(); }}},
                       {rounds, 2, 1});
  const double share = timings[1].median_us / timings[0].median_us;
  const double faster = timings[3].median_us / timings[2].median_us;
  std::printf(
      "%-9s layer %8.1f ms  dispatch + combine %6.2f ms = %.1f %%; padded %6.2f ms, einsum %.1f x "
      "as long\n",
      shape.id.c_str(), timings[0].median_us * 1e-3, timings[1].median_us * 1e-3, 100 * share,
      timings[2].median_us * 1e-3, faster);
  std::fflush(stdout);
  report.add({{"shape", shape.id},
              {"layer_us", timings[0].median_us},
              {"dispatch_combine_us", timings[1].median_us},
              {"padded_us", timings[2].median_us},
              {"einsum_us", timings[3].median_us},
              {"dispatch_combine_share", share},
              {"einsum_over_padded", faster}});
}

int run(int argc, char** argv) {
  Program program(
      "dispatch",
      "How a MoE layer's time divides, forward and backward on one rank, one thread; and "
      "moving rows by index against the einsum with one-hot masks, both padded to a capacity of "
      "1.25 in groups of 512 tokens.",
      15);
  std::string shape_id;
  program.add("--shape", shape_id, "only this shape, e.g. e4_top2");
  return program.run(argc, argv, [&](Report& report) {
    set_up(1, report);
    for (const MoeShape& shape : chosen_shapes(shape_id)) {
      measure(shape, program.rounds(), report);
    }
  });
}

const Benchmark kBenchmark("dispatch", run);

}  // namespace
}  // namespace shoal::bench::dispatch_bench
