#include "moe/nexus/slot_router.h"

#include <cmath>

// B images  N tokens of an image  D width  U units  s slots of a unit  P = U s slots
namespace shoal {
namespace {

constexpr double kLengthEps = 1e-6;

/// 1 / length of each vector of the last dimension, which stays.
torch::Tensor inverse_length(const torch::Tensor& x) {
  return (x.square().sum(-1, true) + kLengthEps).rsqrt();
}

SlotRouter::Weights weights_of(const torch::Tensor& dispatch_BNP, const torch::Tensor& combine_BNP,
                               const torch::Tensor& is_padding_BN1) {
  if (!is_padding_BN1.defined()) return {dispatch_BNP.softmax(1), combine_BNP.softmax(2)};
  return {dispatch_BNP.masked_fill(is_padding_BN1, -INFINITY).softmax(1),
          combine_BNP.softmax(2).masked_fill(is_padding_BN1, 0)};
}

}  // namespace

SlotRouter::SlotRouter(NexusVariant variant, std::optional<double> scale, const Context& context) {
  const bool is_paper = variant == NexusVariant::kPaper;
  const double width = static_cast<double>(context.width);
  const torch::TensorOptions& options = context.tensor_options;
  queries_UsD_ = add_parameter("queries", {context.num_units, context.num_slots, context.width},
                               options, Init::normal(is_paper ? 1 : 1 / std::sqrt(width)));
  if (is_paper) {
    temperature_ = add_parameter("temperature", {2}, options, Init::ones());
  } else {
    const double first = std::log(scale.value_or(std::sqrt(width)));
    log_scale_ = add_parameter("log_scale", {1}, options, Init::constant(first));
  }
}

SlotRouter::Weights SlotRouter::route(const torch::Tensor& x_BND,
                                      const torch::Tensor& is_padding_BN1) const {
  const torch::Tensor x = x_BND.to(queries_UsD_.scalar_type());
  const torch::Tensor query_PD = queries_UsD_.flatten(0, 1);
  if (temperature_.defined()) {
    const torch::Tensor logits_BNP = x.matmul(query_PD.t());
    return weights_of(logits_BNP / temperature_[0], logits_BNP / temperature_[1], is_padding_BN1);
  }
  const torch::Tensor unit_query_PD = query_PD * (inverse_length(query_PD) * log_scale_.exp());
  const torch::Tensor logits_BNP = x.matmul(unit_query_PD.t()) * inverse_length(x);
  return weights_of(logits_BNP, logits_BNP, is_padding_BN1);
}

}  // namespace shoal
