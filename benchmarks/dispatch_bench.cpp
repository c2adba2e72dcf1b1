// What moving rows costs of a MoE layer, on one rank and one thread.
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include "benchmarks/moe_shapes.h"
#include "benchmarks/support/program.h"
#include "moe/dispatch.h"
#include "moe/expert_bank.h"
#include "moe/moe_layer.h"
#include "moe/routers/top_k.h"
#include "parallel/rank_grid.h"
#include "runtime/tensor_memory.h"

// T tokens  D width  E experts  C capacity
namespace shoal::bench {
namespace {

constexpr int64_t kTokensPerSample = 64;

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
    routing_ = fixed_routing(x_.reshape({shape.tokens, shape.width}).matmul(router));
  }

  void layer() {
    const MoeOutput output = layer_->forward(x_, step_);
    torch::autograd::backward({output.y_BRD, output.auxiliary_loss}, {upstream_, torch::ones({})});
    clear();
  }

  /// Capacity, rows to the experts and back, and their gradients; the experts pass rows through.
  void dispatch_and_combine() {
    const torch::Tensor x_TD = x_.reshape({shape_.tokens, shape_.width});
    const UnitPlacement placement = UnitPlacement::contiguous(shape_.experts, 1);
    const Dispatched sent = dispatch(x_TD, limit(routing_, Capacity{}), placement, *grid_.expert);
    combine(sent.rows_RD, sent, *grid_.expert).backward(upstream_.reshape(x_TD.sizes()));
    clear();
  }

  /// The same moves by products with one-hot masks [T, E, C].
  void einsum() {
    const torch::Tensor x_TD = x_.reshape({shape_.tokens, shape_.width});
    const Assignments assignments = limit(routing_, {CapacityMode::kPadded, 1.25, 0, 1, {}});
    const int64_t capacity = assignments.rows_U[0].item<int64_t>();
    const int64_t width = shape_.experts * capacity;
    const torch::Tensor row_A = (assignments.token_A >= 0).nonzero().flatten();
    const torch::Tensor token_A = assignments.token_A.index_select(0, row_A);
    const torch::Tensor mask_TR = torch::zeros({shape_.tokens, width})
                                      .index_put_({token_A, row_A}, torch::ones({row_A.size(0)}));
    const torch::Tensor weight_TR =
        torch::zeros({shape_.tokens, width})
            .index_put_({token_A, row_A}, assignments.weight_A.index_select(0, row_A));
    const torch::Tensor rows_RD = mask_TR.t().matmul(x_TD);
    weight_TR.matmul(rows_RD).backward(upstream_.reshape(x_TD.sizes()));
    clear();
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
    routing.group_offsets = {0, shape_.tokens};
    return routing;
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
  const std::vector<Timing> timings =
      time_interleaved({{"layer", [&] { problem.layer(); }},
                        {"dispatch_and_combine", [&] { problem.dispatch_and_combine(); }},
                        {"einsum", [&] { problem.einsum(); }}},
                       {rounds, 2, 1});
  const double share = timings[1].median_us / timings[0].median_us;
  const double faster = timings[2].median_us / timings[1].median_us;
  std::printf("%-9s layer %8.1f ms  dispatch + combine %6.2f ms = %.1f %%  einsum %.1f x as long\n",
              shape.id.c_str(), timings[0].median_us * 1e-3, timings[1].median_us * 1e-3,
              100 * share, faster);
  std::fflush(stdout);
  report.add({{"shape", shape.id},
              {"layer_us", timings[0].median_us},
              {"dispatch_combine_us", timings[1].median_us},
              {"einsum_us", timings[2].median_us},
              {"dispatch_combine_share", share},
              {"einsum_over_index", faster}});
}

int run(int argc, char** argv) {
  Program program(
      "dispatch",
      "How a MoE layer's time divides, forward and backward on one rank, one thread; and "
      "moving rows by index against the one-hot einsum.",
      15);
  std::string shape_id;
  program.add("--shape", shape_id, "only this shape, e.g. e4_top2");
  return program.run(argc, argv, [&](Report& report) {
    at::set_num_threads(1);
    recycle_tensor_memory();
    report.note("threads", 1);
    report.note("dtype", "float32");
    for (const MoeShape& shape : chosen_shapes(shape_id)) {
      measure(shape, program.rounds(), report);
    }
  });
}

}  // namespace
}  // namespace shoal::bench

int main(int argc, char** argv) { return shoal::bench::run(argc, argv); }
