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
#include "models/attention_experts/kernels/top_k_attention.h"
#include "moe/build_context.h"
#include "moe/losses/balance_losses.h"
#include "moe/moe_stage.h"
#include "moe/routing/router.h"
#include "runtime/base/size_limits.h"
#include "runtime/module/linear.h"
#include "runtime/module/products.h"
#include "runtime/module/sparse_place.h"
#include "runtime/options/config.h"
#include "runtime/options/registry.h"

// B images on this rank  I images with a token for a unit of this rank  N tokens of an image
// D width  T = B N tokens  U experts
namespace shoal {

/// How the outputs of attention experts are mixed.
enum class Mixing {
  kSoft,          ///< every expert computes every token; outputs are weighted by router scores
  kHard,          ///< an expert computes its routed tokens only, over keys and values of all tokens
  kHardSharedKv,  ///< kHard, with one projection to keys and values for all experts
};

template <>
inline constexpr std::array kEnumWords<Mixing>{"soft", "hard", "hard_shared_kv"};

/// Number of keys that a query of one expert attends to (`k` or `share`, not both), and candidates.
struct AttentionExpertOptions {
  std::optional<int64_t> k;
  std::optional<double> share;
  KeyCandidates candidates;

  static constexpr auto fields() {
    return std::tuple{
        field("k", &AttentionExpertOptions::k,
              "keys per query, those with the highest logits; null: all candidates",
              in_range(1, kMostWidth)),
        field("share", &AttentionExpertOptions::share,
              "k as a fraction of the image's tokens, rounded up", in_range(above(0), 1)),
        field("candidates", &AttentionExpertOptions::candidates, "keys a query chooses among")};
  }
  void validate(Problems& problems) const;
  /// Number of keys that each query attends to, for images with this grid of patches.
  int64_t keys_of(const PatchGrid& grid) const;
};

/// Options of a mixture of attention experts and its router. Defaults are the published model's.
struct AttentionExpertsOptions {
  std::vector<AttentionExpertOptions> experts{{32, {}, {}}, {64, {}, {}}, {128, {}, {}}};
  Mixing mixing = Mixing::kSoft;
  int64_t soft_steps = 0;
  Choice<Router> router{"mlp"};
  LossChoices losses{std::in_place};  ///< default: no balance losses

  static constexpr auto fields() {
    return std::tuple{
        field("experts", &AttentionExpertsOptions::experts, "the experts"),
        field("mixing", &AttentionExpertsOptions::mixing, "how their outputs are mixed"),
        field("soft_steps", &AttentionExpertsOptions::soft_steps,
              "with hard mixing: number of initial optimizer steps that use soft mixing",
              at_least(0), keeps_evaluation()),  // no effect on what an evaluation computes
        field("router", &AttentionExpertsOptions::router, "which experts a token is routed to"),
        field(
            "losses", &AttentionExpertsOptions::losses,
            "balance losses, which even out the load of units; auto: the usual ones for the router",
            unset_word("auto"), keeps_evaluation())};
  }
  /// Replaces `losses: auto` by the losses that are usual for the router.
  void resolve();
  void validate(Problems& problems) const;
};

/// Mixture of top-k attention experts: y_i = sum over experts e of w_ie A_e(x)_i. A_e is multi-head
/// attention in which each query attends only to the k_e keys with its highest logits. With soft
/// mixing, w holds the router's scores of all experts; with hard mixing, only those of the experts
/// the token is routed to, and an expert computes queries and outputs for its own tokens only, keys
/// and values for images with such a token. `soft_steps` never applies to evaluation.
///
/// Experts are sharded over the expert-parallel ranks, which exchange whole images (ImageExchange),
/// and are placed by their cost per token. Parameters: `<path>.router.*`; `<path>.experts.*`,
/// stacked over experts: `query.weight`, `key.weight`, `value.weight`, `out.weight`, each [in, out]
/// = [D, D], and biases [D]; with shared keys and values `<path>.key_value.*`, a linear layer D ->
/// 2 D. All are drawn from U(-a, a), a = 1 / sqrt(D). Load is an expert's number of tokens, or with
/// soft mixing the sum of its weights. There is no capacity limit; only routers drop tokens.
/// Source: Adaptive Sparse Attention MoE Architecture (a denoiser), components 3 to 6.
class AttentionExperts : public MoeStage, public HasSparsePlaces, public CountsProducts {
 public:
  struct Sizes {
    int64_t width = 0, heads = 0;
    PatchGrid grid;
  };
  /// `path`: the layer's path in the model. With a null context.grid it has parameters but cannot
  /// run. Throws ConfigError for an expert whose queries have no candidate keys.
  AttentionExperts(const AttentionExpertsOptions& options, const Sizes& sizes,
                   const std::string& path, const BuildContext& context);
  /// Collective over the grid's expert and world ranks. B may be 0.
  MoeOutput forward(const torch::Tensor& x_BND, const StepContext& step);
  void after_step() override;
  MoeStageInfo info() const override;
  std::vector<SparsePlace> sparse_places() const override;
  /// Counts experts as if they got equally many tokens, with keys and values of all tokens.
  void list_products(double rows, ProductList& list) const override;

 private:
  /// Weight of each expert's output for each token, and which experts compute the token.
  struct Weights {
    torch::Tensor weight_TU;     ///< differentiable
    torch::Tensor is_routed_TU;  ///< bool; undefined: every expert computes every token
  };
  struct Bank;

  bool is_soft(const StepContext& step) const;
  Weights weights_of(const Routing& routing, bool is_soft) const;
  ImageExchange exchange_of(const torch::Tensor& x_BND, const torch::Tensor& is_routed_TU,
                            const StepContext& step) const;
  /// Queries, keys and values of this rank's experts, to be passed to top_k_attention_of.
  struct Projections {
    std::vector<torch::Tensor> rows;  ///< projected rows, shared keys and values first
    std::vector<TopKPart> experts;    ///< which columns of which `rows` an expert reads
    size_t add(const torch::Tensor& of_experts) {
      rows.push_back(of_experts);
      return rows.size() - 1;
    }
  };
  /// Calls the next three functions; tokens_u: the tokens routed to each expert of this rank.
  Projections project(const torch::Tensor& x_IND, const ImageExchange& exchange) const;
  /// Adds all projections that read every row of x, computed as one matrix product.
  void project_all_rows(const torch::Tensor& x_IND, const std::vector<UnitTokens>& tokens_u,
                        Projections& to) const;
  /// Adds the queries of experts that only some tokens are routed to. x_TD: here T = I N.
  void project_chosen_queries(const torch::Tensor& x_TD, const std::vector<UnitTokens>& tokens_u,
                              Projections& to) const;
  /// Adds the keys and values of experts that need only some of the images.
  void project_keys_of_some_images(const torch::Tensor& x_IND,
                                   const std::vector<UnitTokens>& tokens_u, Projections& to) const;
  /// Weighted sum of the experts' outputs, [B, N, D], when this rank has all experts and each
  /// computes every token. Applies weights before the output projections, to fuse these into one.
  torch::Tensor mix_all(const torch::Tensor& x_BND, const torch::Tensor& weight_TU,
                        const ImageExchange& exchange) const;
  /// The weighted sum if experts are on several ranks or compute only the tokens routed to them.
  torch::Tensor exchange_and_mix(const torch::Tensor& x_BND, const torch::Tensor& weight_TU,
                                 const ImageExchange& exchange) const;
  /// Outputs of this rank's experts before weighting, concatenated in expert order.
  torch::Tensor run_experts(const torch::Tensor& x_IND, const ImageExchange& exchange) const;
  TopKOptions attention_of(int64_t expert) const;
  /// Multiply-adds of a query's logits and weighted sum of values in this expert, over all keys.
  double between_activations_of_query(int64_t expert) const;
  /// Multiply-adds of one query, with its query and output projections.
  double multiply_adds_of_query(int64_t expert) const;
  /// Multiply-adds of all tokens, keys and values included.
  double multiply_adds(const RoutedCounts& counts) const;
  /// Statistics of one forward pass; is_routed_TU as in Weights.
  MoeStats stats(const Routing& routing, const RoutedCounts& counts,
                 const torch::Tensor& is_routed_TU, const BalanceLosses::Sums& losses) const;

  AttentionExpertsOptions options_;
  Sizes sizes_;
  RankGrid* grid_;
  UnitPlacement placement_ = UnitPlacement::contiguous(0, 1);
  std::shared_ptr<Router> router_;
  std::shared_ptr<Bank> bank_;
  Linear key_value_{nullptr};  ///< null unless keys and values are shared
  BalanceLosses losses_;
};

}  // namespace shoal
