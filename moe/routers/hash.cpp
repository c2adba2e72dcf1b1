#include <array>

#include "moe/kernels/row_top_k.h"
#include "moe/routing/router.h"
#include "runtime/random/random.h"
#include "runtime/random/random_stream.h"

// b samples  R rows per sample  T = b R tokens  U units  K choices
namespace shoal {

/// What a token's units are drawn from.
enum class HashBy { kAuto, kToken, kPosition };

template <>
inline constexpr std::array kEnumWords<HashBy>{"auto", "token", "position"};

namespace {

/// A token's units are drawn once and for all from its vocabulary id or its position: k distinct
/// ones, each with weight 1 / k. Nothing is learned.
/// Source: Roller et al. 2021 (Hash Layers), random hash by vocabulary id; images, which have none,
/// are hashed by the position in the sample.
class HashRouter : public Router {
 public:
  struct Options {
    int64_t k = 1;
    HashBy by = HashBy::kAuto;

    static constexpr auto fields() {
      return std::tuple{field("k", &Options::k, "units a token is routed to", at_least(1)),
                        field("by", &Options::by,
                              "what a token is hashed by: its vocabulary ID, or its position in "
                              "the sample; auto: the ID if the rows are tokens")};
    }
  };
  HashRouter(const Options& options, const Context& context)
      : Router(options.k, context), by_(options.by), tensor_options_(context.tensor_options) {}

  Routing route(const torch::Tensor& /*x_TD*/, const TokenContext& context) override {
    Routing routing;
    routing.num_units = num_units();
    routing.group_offsets = context.group_offsets;
    const Stream stream{context.step.seed, Purpose::kRouting, context.layer, 0};
    const torch::Tensor key_bR = keys_of(context);
    const torch::Tensor draw_RU =
        uniform_rows(stream, key_bR.flatten(), num_units(), torch::kFloat32);
    const torch::Tensor choice_RK = top_k(draw_RU, units_per_token());
    const int64_t copies = key_bR.dim() == 1 ? context.step.sample_b.size(0) : 1;
    routing.choice_TK = context.take_tokens(choice_RK.repeat({copies, 1}));
    routing.unit_TK = routing.choice_TK;
    routing.weight_TK = torch::full(routing.choice_TK.sizes(),
                                    1.0 / static_cast<double>(units_per_token()), tensor_options_);
    routing.score_TK = routing.weight_TK;
    return routing;
  }

  bool takes_balance_losses() const override { return false; }
  bool weights_sum_to_one() const override { return true; }
  bool needs_token_ids() const override { return by_ == HashBy::kToken; }
  bool assigns_by_seed() const override { return true; }

 private:
  /// [b, R], or [R] for all samples alike.
  torch::Tensor keys_of(const TokenContext& context) const {
    const int64_t rows = context.rows_per_sample;
    const auto fits = [rows](const torch::Tensor& id_bS) {
      return id_bS.defined() && id_bS.size(1) == rows;
    };
    const torch::Tensor& token_bS = context.step.token_bS;
    if (by_ == HashBy::kToken || (by_ == HashBy::kAuto && fits(token_bS))) {
      TORCH_CHECK(fits(token_bS), "hash by token: the layer has ", rows,
                  " rows per sample, which are not its tokens");
      return token_bS;
    }
    const torch::Tensor& position_bS = context.step.position_bS;
    if (fits(position_bS)) return position_bS;
    return torch::arange(rows, context.step.sample_b.options());
  }

  HashBy by_;
  torch::TensorOptions tensor_options_;
};

const Registration<Router, HashRouter> registered_hash_router{
    "hash", "k fixed, randomly drawn units for each vocabulary ID or position"};

}  // namespace
}  // namespace shoal
