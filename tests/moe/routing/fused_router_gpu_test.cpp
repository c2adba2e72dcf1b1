#include "moe/routing/fused_router.h"

#include "moe/kernels/logit_functions.h"
#include "moe/kernels/row_top_k.h"
#include "moe/routing/score_router.h"
#include "tests/support/gradient_check.h"
#include "tests/support/on_gpu.h"

// T tokens  U units  K choices
namespace shoal {
namespace {

using testing::some_numbers;

/// The steps of ScoreRouter::route, on the CPU.
FusedChoices in_steps(const torch::Tensor& logits_TU, const torch::Tensor& bias_U,
                      const FusedRouterOptions& options) {
  FusedChoices choices;
  choices.score_TU =
      options.score == RouterScore::kSoftmax ? row_softmax(logits_TU) : logit_sigmoid(logits_TU);
  const torch::Tensor selection = bias_U.defined() ? choices.score_TU + bias_U : logits_TU;
  choices.choice_TK = top_k(selection.detach(), options.k);
  choices.chosen_score_TK = choices.score_TU.detach().gather(1, choices.choice_TK);
  choices.weight_TK =
      combine_weights(choices.score_TU, logits_TU, choices.choice_TK, options.normalise);
  const int64_t num_units = logits_TU.size(1);
  choices.count_U = torch::zeros({num_units}, torch::kInt64);
  const torch::Tensor choice = choices.choice_TK.flatten();
  choices.count_U.index_add_(0, choice, torch::ones_like(choice));
  return choices;
}

class FusedRouterGpu : public testing::OnGpu {
 protected:
  void expect_steps(const torch::Tensor& logits_TU, const torch::Tensor& bias_U,
                    const FusedRouterOptions& options) const {
    const torch::Tensor leaf = logits_TU.detach().clone().set_requires_grad(true);
    const torch::Tensor other = on_gpu(leaf);
    ASSERT_TRUE(can_fuse_router(other, options.k));
    const FusedChoices expected = in_steps(leaf, bias_U, options);
    const FusedChoices found = fused_router(other, on_gpu(bias_U), options);
    expect_same(expected.choice_TK, found.choice_TK);
    expect_same(expected.count_U, found.count_U);
    // A softmax sums up to 256 exponentials on both sides.
    expect_close(expected.score_TU, found.score_TU, 64);
    expect_close(expected.chosen_score_TK, found.chosen_score_TK, 64);
    expect_close(expected.weight_TK, found.weight_TK, 64);
    const torch::Tensor upstream_TU = some_numbers(logits_TU.sizes(), 7, logits_TU.options());
    const torch::Tensor upstream_TK =
        some_numbers(expected.weight_TK.sizes(), 8, logits_TU.options());
    ((expected.score_TU * upstream_TU).sum() + (expected.weight_TK * upstream_TK).sum()).backward();
    ((found.score_TU * on_gpu(upstream_TU)).sum() + (found.weight_TK * on_gpu(upstream_TK)).sum())
        .backward();
    expect_close(leaf.grad(), other.grad(), 256);
  }
};

TEST_F(FusedRouterGpu, EqualsTheStepsOnTheCpu) {
  for (const int64_t num_units : {1, 2, 5, 8, 32, 33, 64, 100, 255, 256}) {
    for (const int64_t k : {1, 2, 3, 8}) {
      if (k > num_units) continue;
      for (const Normalise normalise :
           {Normalise::kNone, Normalise::kTopkSoftmax, Normalise::kSum}) {
        for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
          const torch::Tensor logits = some_numbers({43, num_units}, 1, torch::kFloat64) * 4;
          const torch::Tensor bias = some_numbers({num_units}, 2, torch::kFloat64) * 0.2;
          expect_steps(logits, {}, {k, score, normalise});
          expect_steps(logits, bias, {k, score, normalise});
          expect_steps(logits.to(torch::kFloat32), {}, {k, score, normalise});
        }
      }
    }
  }
}

// Logits choose: the same ones whatever the scores' last bits are.
TEST_F(FusedRouterGpu, GivesTiesToTheLowerUnit) {
  for (const int64_t num_units : {3, 8, 64, 256}) {
    const torch::Tensor logits = (some_numbers({600, num_units}, 1, torch::kFloat32) * 2).round();
    expect_steps(logits, {}, {2, RouterScore::kSoftmax, Normalise::kNone});
    expect_steps(torch::zeros_like(logits), {}, {3, RouterScore::kSigmoid, Normalise::kSum});
  }
}

TEST_F(FusedRouterGpu, LogitsWhoseDifferenceOverflowsStayNumbers) {
  const torch::Tensor logits =
      torch::tensor({{3.3e38f, -3.3e38f, 0.0f}, {-3.3e38f, 1.0f, 3.3e38f}});
  for (const Normalise normalise : {Normalise::kNone, Normalise::kTopkSoftmax, Normalise::kSum}) {
    for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
      expect_steps(logits, {}, {2, score, normalise});
      expect_steps(logits.to(torch::kFloat64) * 5e269, {}, {2, score, normalise});
    }
  }
}

TEST_F(FusedRouterGpu, CountsManyTokensAndNone) {
  for (const int64_t num_tokens : {0, 1, 20'000}) {
    const torch::Tensor logits = some_numbers({num_tokens, 8}, 1, torch::kFloat32);
    expect_steps(logits, {}, {2, RouterScore::kSoftmax, Normalise::kNone});
  }
}

}  // namespace
}  // namespace shoal
