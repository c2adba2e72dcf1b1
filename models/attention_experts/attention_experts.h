#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/attention_experts/image_exchange.h"
#include "models/attention_experts/kernels/key_candidates.h"
#include "moe/losses/balance_losses.h"
#include "moe/moe_stage.h"
#include "moe/routing/router.h"
#include "parallel/comm/build_context.h"
#include "runtime/base/size_limits.h"
#include "runtime/module/linear.h"
#include "runtime/module/products.h"
#include "runtime/options/config.h"
#include "runtime/options/registry.h"

// B images on this rank  N tokens of an image  D width  T = B N tokens  U experts
namespace shoal {

/// How the outputs of attention experts are mixed.
enum class Mixing {
  kSoft,  ///< every expert computes every token; outputs are weighted by the router's scores
  kHard,  ///< experts compute the tokens that are routed to them, with keys and values of all
  kHardSharedKv,  ///< the same with keys and values that all experts share
};

template <>
struct EnumNames<Mixing> {
  static constexpr std::array names{std::pair{Mixing::kSoft, "soft"},
                                    std::pair{Mixing::kHard, "hard"},
                                    std::pair{Mixing::kHardSharedKv, "hard_shared_kv"}};
};

/// What one attention expert attends to.
struct AttentionExpertOptions {
  std::optional<int64_t> k;
  std::optional<double> share;
  KeyCandidates candidates;

  static constexpr auto fields() {
    return std::tuple{
        field("k", &AttentionExpertOptions::k,
              "keys a query attends to, those of its highest logits; null: all candidates",
              in_range(1, kMostWidth)),
        field("share", &AttentionExpertOptions::share,
              "the same as a share of an image's tokens, rounded up", in_range(above(0), 1)),
        field("candidates", &AttentionExpertOptions::candidates, "which keys it chooses among")};
  }
  void validate(Problems& problems) const;
  /// Keys a query attends to in images of this grid.
  int64_t keys_of(const PatchGrid& grid) const;
};

/// Attention experts behind a router, in a recipe. Defaults are the published model's.
struct AttentionExpertsOptions {
  std::vector<AttentionExpertOptions> experts{{32, {}, {}}, {64, {}, {}}, {128, {}, {}}};
  Mixing mixing = Mixing::kSoft;
  int64_t soft_steps = 0;
  Choice<Router> router{"mlp"};
  LossChoices losses{std::in_place};  ///< none

  static constexpr auto fields() {
    return std::tuple{
        field("experts", &AttentionExpertsOptions::experts, "the experts"),
        field("mixing", &AttentionExpertsOptions::mixing, "how their outputs are mixed"),
        field("soft_steps", &AttentionExpertsOptions::soft_steps,
              "with hard mixing, optimizer steps at the start that train with soft mixing",
              at_least(0), keeps_evaluation()),
        field("router", &AttentionExpertsOptions::router, "which experts a token is routed to"),
        field("losses", &AttentionExpertsOptions::losses,
              "balance losses, which even out the load of units; auto: those that are usual for "
              "the router",
              unset_word("auto"), keeps_evaluation())};
  }
  /// Puts the losses that `auto` stands for in its place.
  void resolve();
  void validate(Problems& problems) const;
};

/// Mixture of top-k attention experts: y_i = sum over experts e of w_ie A_e(x)_i, where A_e is
/// multi-head attention whose queries attend to the k_e keys of their highest logits alone. The
/// weights w are the router's scores of all experts (soft), or of those the token is routed to;
/// then an expert computes queries and outputs of these tokens only, and keys and values of images
/// that have one. Evaluation is as training, but always hard where mixing is.
///
/// Experts are units, sharded over the expert ranks by (image, expert) (ImageExchange), placed by
/// the cost of a token. Parameters: the router's under `<path>.router.*`; stacked by expert, under
/// `<path>.experts.*`, `query.weight`, `key.weight`, `value.weight`, `out.weight` [D, D], input
/// first, and their biases [D]; with shared keys and values `<path>.key_value.*`, a linear layer to
/// 2 D. All uniform in +-1 / sqrt(D). Statistics: load is the number of tokens of an expert, in
/// soft mixing the sum of its weights. There is no capacity: only routers leave tokens out.
/// Source: the adaptive sparse-attention denoiser, components 3 to 6.
class AttentionExperts : public MoeStage, public CountsProducts {
 public:
  struct Sizes {
    int64_t width = 0, heads = 0;
    PatchGrid grid;
  };
  /// A null context.grid means a layer that cannot run. Throws ConfigError.
  AttentionExperts(const AttentionExpertsOptions& options, const Sizes& sizes,
                   const std::string& path, const BuildContext& context);
  /// Collective over the grid's expert and world ranks. B may be 0.
  MoeOutput forward(const torch::Tensor& x_BND, const StepContext& step);
  void after_step() override;
  MoeStageInfo info() const override;
  /// Counts experts that get equally many tokens, and keys and values of all tokens in each.
  void list_products(double rows, ProductList& list) const override;

 private:
  /// The weight of each expert's output, and the experts that compute a token.
  struct Weights {
    torch::Tensor weight_TU;     ///< differentiable
    torch::Tensor is_routed_TU;  ///< bool; undefined: all
  };
  struct Bank;

  bool is_soft(const StepContext& step) const;
  Weights weights_of(const Routing& routing, bool is_soft) const;
  ImageExchange exchange_of(const torch::Tensor& x_BND, const torch::Tensor& is_routed_TU,
                            const StepContext& step) const;
  /// Queries, keys and values of this rank's experts, as top_k_attention_of takes them.
  struct Projections {
    std::vector<torch::Tensor> rows;  ///< the shared keys and values first
    std::vector<TopKPart> experts;
    size_t add(const torch::Tensor& of_experts) {
      rows.push_back(of_experts);
      return rows.size() - 1;
    }
  };
  Projections project(const torch::Tensor& x_IND, const ImageExchange& exchange) const;
  /// The layers that read all rows, as one product.
  void project_all_rows(const torch::Tensor& x_IND, const std::vector<UnitTokens>& tokens_u,
                        Projections& to) const;
  /// Queries of the experts that do not have all tokens.
  void project_chosen_queries(const torch::Tensor& x_TD, const std::vector<UnitTokens>& tokens_u,
                              Projections& to) const;
  /// Keys and values of the experts that have no token of some image.
  void project_keys_of_some_images(const torch::Tensor& x_IND,
                                   const std::vector<UnitTokens>& tokens_u, Projections& to) const;
  /// The weighted sum of the experts' outputs, [B, N, D], where this rank has all experts and each
  /// computes every token: the weights scale the attention's outputs, so that the experts' last
  /// layers are one product.
  torch::Tensor mix_all(const torch::Tensor& x_BND, const torch::Tensor& weight_TU,
                        const ImageExchange& exchange) const;
  /// The same where experts are on several ranks or compute only the tokens routed to them.
  torch::Tensor exchange_and_mix(const torch::Tensor& x_BND, const torch::Tensor& weight_TU,
                                 const ImageExchange& exchange) const;
  /// The outputs of this rank's experts, unweighted, one expert's after another.
  torch::Tensor run_experts(const torch::Tensor& x_IND, const ImageExchange& exchange) const;
  TopKOptions attention_of(int64_t expert) const;
  /// Of one token in this expert: its logits and sums over all keys.
  double between_activations_of_query(int64_t expert) const;
  /// The same with its query and its output.
  double multiply_adds_of_query(int64_t expert) const;
  /// Of all tokens, keys and values included.
  double multiply_adds(const RoutedCounts& counts) const;
  /// is_routed_TU as in Weights.
  MoeStats stats(const Routing& routing, const RoutedCounts& counts,
                 const torch::Tensor& is_routed_TU, const BalanceLosses::Sums& losses) const;

  AttentionExpertsOptions options_;
  Sizes sizes_;
  RankGrid* grid_;
  UnitPlacement placement_ = UnitPlacement::contiguous(0, 1);
  std::shared_ptr<Router> router_;
  std::shared_ptr<Bank> bank_;
  Linear key_value_{nullptr};  ///< set with shared keys and values
  BalanceLosses losses_;
};

}  // namespace shoal
