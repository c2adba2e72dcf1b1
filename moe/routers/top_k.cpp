#include "moe/routers/top_k.h"

namespace shoal {
namespace {

const Registration<Router, TopKRouter> registered_top_k_router{
    "top_k", "the k units with the highest softmax scores, with noise during training"};

/// Noisy top-k gating: the k highest of W_g x and, while training, normal noise with the standard
/// deviation softplus(W_noise x) + 0.01, weighted by a softmax over these k. The same as `top_k`
/// with noise: learned and normalise: topk_softmax, under the name it is known by.
/// Source: Shazeer et al. 2017, equations 3 to 5.
class NoisyTopKRouter : public TopKRouter {
 public:
  struct Options : ScoreOptions {
    Options() : ScoreOptions{2, RouterNoise::kLearned, {Normalise::kTopkSoftmax}} {}
  };
  using TopKRouter::TopKRouter;
};

const Registration<Router, NoisyTopKRouter> registered_noisy_top_k_router{
    "noisy_top_k", "top-k of logits with learned noise, softmax over the selected"};

}  // namespace
}  // namespace shoal
