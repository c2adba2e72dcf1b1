#include "moe/routers/top_k.h"

#include <cmath>
#include <string>

#include "moe/row_softmax.h"
#include "moe/top_k.h"
#include "runtime/random.h"

namespace shoal {

TopKRouter::TopKRouter(const Options& options, const Context& context)
    : options_(options), num_units_(context.num_units) {
  const double std_dev = 1.0 / std::sqrt(static_cast<double>(context.width));
  weight_DU_ = add_parameter("weight", {context.width, num_units_}, context.tensor_options,
                             Init::normal(std_dev));
}

double TopKRouter::noise_std() const {
  return options_.noise == RouterNoise::kGaussian ? 1.0 / static_cast<double>(num_units_) : 0.0;
}

void TopKRouter::check(const std::string& path, Problems& problems) const {
  if (options_.k > num_units_) {
    problems.add(path + ".k", std::to_string(options_.k) + " units a token, but there are only " +
                                  std::to_string(num_units_));
  }
}

Routing TopKRouter::route(const torch::Tensor& x_TD, const TokenContext& context) {
  Routing routing;
  routing.group_offsets = context.group_offsets;
  // The transpose, copied: both products with a matrix this narrow run several times as fast.
  const torch::Tensor weight_UD = weight_DU_.t().contiguous();
  routing.logits_TU = torch::mm(x_TD.to(weight_DU_.scalar_type()), weight_UD.t());
  routing.noisy_TU = routing.logits_TU;
  if (context.step.training && noise_std() > 0) {
    const Stream stream{context.step.seed, Purpose::kRouterNoise, context.layer,
                        static_cast<uint64_t>(context.step.step)};
    const torch::Tensor noise_TU = normal_rows(stream, token_ids(context).to(x_TD.device()),
                                               num_units_, weight_DU_.scalar_type());
    routing.noise_std = noise_std();
    routing.noisy_TU = routing.logits_TU.add(noise_TU, noise_std());
  }
  const torch::Tensor gate_TU = row_softmax(routing.noisy_TU);
  routing.prob_TU = routing.noise_std > 0 ? row_softmax(routing.logits_TU) : gate_TU;
  routing.choice_TK = top_k(routing.noisy_TU.detach(), options_.k);
  routing.unit_TK = routing.choice_TK;
  routing.weight_TK =
      combine_weights(gate_TU, routing.noisy_TU, routing.choice_TK, options_.weights.normalise);
  routing.score_TK = options_.weights.normalise == Normalise::kNone
                         ? routing.weight_TK.detach()
                         : gate_TU.detach().gather(1, routing.choice_TK);
  routing.renorm_after_drop = options_.weights.renorm_after_drop;
  routing.weight_scale = options_.weights.scale;
  return routing;
}

namespace {
const Registration<Router, TopKRouter> registered{
    "top_k", "the k units of the highest softmax score, with noise while training"};
}

}  // namespace shoal
