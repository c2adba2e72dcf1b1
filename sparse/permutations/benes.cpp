#include "sparse/permutations/benes.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/random/random.h"
#include "sparse/permutations/soft_method.h"

namespace shoal {
namespace {

/// Distance of the two members of a switch in this stage.
int64_t reach(int64_t side, int64_t stage) {
  const int64_t last = 2 * log2_of(side) - 2;
  return side >> (std::min(stage, last - stage) + 1);
}

/// Applies one stage, probabilities p [u, G, s / 2], to pairs at distance `h` of x [u, G, a, s, b].
torch::Tensor exchanged(const torch::Tensor& x, const torch::Tensor& p_uGh, int64_t h) {
  const int64_t u = x.size(0), groups = x.size(1), blocks = x.size(3) / (2 * h);
  const torch::Tensor pairs = x.view({u, groups, x.size(2), blocks, 2, h, x.size(4)});
  const torch::Tensor first = pairs.select(4, 0), second = pairs.select(4, 1);
  const torch::Tensor p = p_uGh.view({u, groups, 1, blocks, h, 1});
  return at::stack({first.lerp(second, p), second.lerp(first, p)}, 4).view(x.sizes());
}

/// Sets the switches of one network, from the outer stages to the inner ones.
class SwitchRouting {
 public:
  explicit SwitchRouting(const std::vector<int64_t>& index)
      : switches_(static_cast<size_t>(2 * log2_of(std::ssize(index)) - 1),
                  std::vector<bool>(index.size() / 2)) {
    set(index, /*stage=*/0, /*begin=*/0);
  }
  std::vector<std::vector<bool>> take_switches() { return std::move(switches_); }

 private:
  /// The part of the network from `stage` to its mirror image, for members from 2 · begin on.
  void set(const std::vector<int64_t>& index, size_t stage, size_t begin) {
    const size_t half = index.size() / 2;
    if (half == 1) {
      switches_[stage][begin] = index[0] == 1;
      return;
    }
    const std::vector<bool> is_lower = choose_halves(index);
    std::vector<int64_t> upper(half), lower(half);
    for (size_t place = 0; place < index.size(); ++place) {
      (is_lower[place] ? lower : upper)[place % half] = index[place] % static_cast<int64_t>(half);
    }
    for (size_t place = 0; place < index.size(); ++place) {
      const auto member = static_cast<size_t>(index[place]);
      if (member < half) switches_[stage][begin + member] = is_lower[place];
      if (place < half) switches_[switches_.size() - 1 - stage][begin + place] = is_lower[place];
    }
    set(upper, stage + 1, begin);
    set(lower, stage + 1, begin + half / 2);
  }

  /// True for members that pass through the lower half. The two members of a switch use different
  /// halves, in the first and in the last stage; that links members into loops.
  static std::vector<bool> choose_halves(const std::vector<int64_t>& index) {
    const size_t half = index.size() / 2;
    const auto partner = [half](size_t i) { return i < half ? i + half : i - half; };
    std::vector<size_t> place_of(index.size());
    for (size_t place = 0; place < index.size(); ++place) {
      place_of[static_cast<size_t>(index[place])] = place;
    }
    std::vector<bool> is_lower(index.size()), is_done(index.size());
    for (size_t start = 0; start < index.size(); ++start) {
      for (size_t place = start; !is_done[place];) {
        const size_t other = place_of[partner(static_cast<size_t>(index[place]))];
        is_lower[other] = true;
        is_done[place] = is_done[other] = true;
        place = partner(other);
      }
    }
    return is_lower;
  }

  std::vector<std::vector<bool>> switches_;
};

const Registration<PermutationMethod, SoftMethod<Benes>> registered_benes{
    "benes", "trained while soft, then hard; switches that represent all permutations"};

}  // namespace

torch::Tensor Benes::switched(const torch::Tensor& probability_uG, const torch::Tensor& x_uGasb,
                              bool is_transposed) const {
  // A stage is symmetric, so the transpose only reverses the order of the stages.
  std::vector<torch::Tensor> stages = probability_uG.unbind(2);
  if (is_transposed) std::ranges::reverse(stages);
  torch::Tensor x = x_uGasb;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    x = exchanged(x, stages[stage], reach(x_uGasb.size(3), static_cast<int64_t>(stage)));
  }
  return x;
}

torch::Tensor Benes::random_switches(const torch::Tensor& logit_G, const Stream& stream) const {
  const int64_t groups = logit_G.size(0), side = side_of(logit_G);
  const torch::Tensor score_Gs = at::empty({groups, side}, logit_G.options());
  fill_uniform(score_Gs, stream);
  const torch::Tensor order_Gs =
      score_Gs.argsort(/*stable=*/true, 1, /*descending=*/false).to(torch::kCPU).contiguous();
  const auto* order = order_Gs.const_data_ptr<int64_t>();
  const torch::Tensor on_G = at::zeros(logit_G.sizes(), torch::kFloat32);
  auto* on = on_G.mutable_data_ptr<float>();
  for (int64_t group = 0; group < groups; ++group, order += side) {
    for (const std::vector<bool>& stage : benes_switches({order, order + side})) {
      for (const bool is_on : stage) *on++ = is_on ? 1.0f : 0.0f;
    }
  }
  return on_G.to(logit_G.options());
}

std::vector<std::vector<bool>> benes_switches(const std::vector<int64_t>& index) {
  TORCH_CHECK(index.size() >= 2 && std::has_single_bit(index.size()),
              "a Benes network has a power of 2 of members, not ", index.size());
  return SwitchRouting(index).take_switches();
}

}  // namespace shoal
