#include "moe/kernels/row_top_k.h"
#include "moe/routing/router.h"
#include "runtime/random/random.h"
#include "runtime/random/random_stream.h"

// R rows per sample  U units  K choices
namespace shoal {
namespace {

/// A token's units are drawn once and for all from its position in the sample: k distinct ones,
/// each with weight 1 / k. Nothing is learned.
/// Source: Roller et al. 2021 (Hash Layers), random hash, with the position in the place of the
/// vocabulary id that images do not have.
class HashRouter : public Router {
 public:
  struct Options {
    int64_t k = 1;

    static constexpr auto fields() {
      return std::tuple{field("k", &Options::k, "units a token is routed to", at_least(1))};
    }
  };
  HashRouter(const Options& options, const Context& context)
      : Router(options.k, context), tensor_options_(context.tensor_options) {}

  Routing route(const torch::Tensor& /*x_TD*/, const TokenContext& context) override {
    Routing routing;
    routing.num_units = num_units();
    routing.group_offsets = context.group_offsets;
    const Stream stream{context.step.seed, Purpose::kRouting, context.layer, 0};
    const torch::Tensor position_R =
        torch::arange(context.tokens_per_sample, context.step.sample_b.options());
    const torch::Tensor draw_RU = uniform_rows(stream, position_R, num_units(), torch::kFloat32);
    const torch::Tensor choice_RK = top_k(draw_RU, units_per_token());
    routing.choice_TK = choice_RK.repeat({context.step.sample_b.size(0), 1});
    routing.unit_TK = routing.choice_TK;
    routing.weight_TK = torch::full(routing.choice_TK.sizes(),
                                    1.0 / static_cast<double>(units_per_token()), tensor_options_);
    routing.score_TK = routing.weight_TK;
    return routing;
  }

  bool takes_balance_losses() const override { return false; }
  bool weights_sum_to_one() const override { return true; }

 private:
  torch::TensorOptions tensor_options_;
};

const Registration<Router, HashRouter> registered_hash_router{
    "hash", "k units drawn for each position of a sample, once and for all"};

}  // namespace
}  // namespace shoal
