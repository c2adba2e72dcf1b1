#include "moe/experts/expert_mlp.h"

#include <numeric>

#include "tests/support/gradient_check.h"
#include "tests/support/on_gpu.h"

// R rows  D width  H hidden width  u experts
namespace shoal {
namespace {

using testing::some_numbers;
using Ids = std::vector<int64_t>;

struct Sizes {
  int64_t width, hidden;
  bool bias, gate;
};

class ExpertMlpGpu : public testing::OnGpu {
 protected:
  static ExpertWeights some_weights(int64_t u, const Sizes& sizes, torch::TensorOptions options) {
    const auto some = [&](at::IntArrayRef shape, int64_t seed) {
      return (some_numbers(shape, seed) * 0.2).to(options).set_requires_grad(true);
    };
    ExpertWeights weights;
    weights.fc1_weight = some({u, sizes.width, sizes.hidden}, 1);
    weights.fc2_weight = some({u, sizes.hidden, sizes.width}, 2);
    if (sizes.bias) weights.fc1_bias = some({u, sizes.hidden}, 3);
    if (sizes.bias) weights.fc2_bias = some({u, sizes.width}, 4);
    if (sizes.gate) weights.gate_weight = some({u, sizes.width, sizes.hidden}, 5);
    if (sizes.gate && sizes.bias) weights.gate_bias = some({u, sizes.hidden}, 6);
    return weights;
  }
  /// float64 on the CPU, of the same values.
  static torch::Tensor reference(const torch::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    return tensor.detach().cpu().to(torch::kFloat64).set_requires_grad(true);
  }
  template <class Of>
  static ExpertWeights each(const ExpertWeights& weights, const Of& of) {
    return {of(weights.fc1_weight), of(weights.fc1_bias),    of(weights.fc2_weight),
            of(weights.fc2_bias),   of(weights.gate_weight), of(weights.gate_bias)};
  }
  static std::vector<torch::Tensor> tensors_of(const ExpertWeights& weights) {
    return {weights.fc1_weight, weights.fc1_bias,    weights.fc2_weight,
            weights.fc2_bias,   weights.gate_weight, weights.gate_bias};
  }

  /// Values and gradients; `num_behind` rows belong to no expert.
  void expect_reference(const Ids& rows_u, const Sizes& sizes, at::ScalarType type,
                        int64_t num_behind) const {
    const int64_t num_rows = std::accumulate(rows_u.begin(), rows_u.end(), int64_t{0});
    const auto u = static_cast<int64_t>(rows_u.size());
    const ExpertWeights weights =
        each(some_weights(u, sizes, type), [&](const auto& tensor) { return on_gpu(tensor); });
    const torch::Tensor rows = on_gpu(
        some_numbers({num_rows + num_behind, sizes.width}, 7).to(type).set_requires_grad(true));
    const torch::Tensor upstream =
        on_gpu(some_numbers({num_rows + num_behind, sizes.width}, 8).to(type));
    const UnitRows counts(on_gpu(torch::tensor(rows_u, torch::kInt64)));
    const torch::Tensor y = num_behind > 0 ? expert_mlp(rows, counts, weights, Activation::kGelu)
                                           : expert_mlp(rows, rows_u, weights, Activation::kGelu);
    y.backward(upstream);

    const ExpertWeights expected_weights = each(weights, reference);
    const torch::Tensor own_rows = reference(rows.narrow(0, 0, num_rows));
    const torch::Tensor expected =
        expert_mlp(own_rows, rows_u, expected_weights, Activation::kGelu);
    expected.backward(reference(upstream.narrow(0, 0, num_rows)).detach());
    // Intermediate results are rounded to the type; sums over rows are in float32 at least.
    const double roundings = type == torch::kBFloat16 ? 4 : 256;
    expect_close(expected, y.narrow(0, 0, num_rows), roundings);
    expect_close(own_rows.grad(), rows.grad().narrow(0, 0, num_rows), roundings);
    const auto all = tensors_of(weights), expected_all = tensors_of(expected_weights);
    for (size_t i = 0; i < all.size(); ++i) {
      if (!all[i].defined()) continue;
      expect_close(expected_all[i].grad(), all[i].grad(), roundings);
      for (size_t e = 0; e < rows_u.size(); ++e) {
        if (rows_u[e] > 0) continue;
        EXPECT_EQ(all[i].grad()[static_cast<int64_t>(e)].abs().max().item<double>(), 0.0);
      }
    }
  }
};

const std::vector<Ids> kRows{{5, 0, 17, 3}, {0, 0, 40}, {1}, {0, 0}, {300, 1, 200, 0, 0, 99}};

TEST_F(ExpertMlpGpu, EqualsTheCpuInAllTypes) {
  for (const at::ScalarType type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16}) {
    for (const Ids& rows_u : kRows) {
      for (const bool gate : {false, true}) {
        for (const bool bias : {false, true}) {
          expect_reference(rows_u, {16, 40, bias, gate}, type, 0);
          expect_reference(rows_u, {24, 136, bias, gate}, type, 0);
        }
      }
    }
  }
}

// The grouped product takes multiples of eight: others are filled up.
TEST_F(ExpertMlpGpu, TakesAnyWidth) {
  for (const at::ScalarType type : {torch::kFloat32, torch::kBFloat16}) {
    expect_reference({5, 0, 17, 3}, {7, 13, true, true}, type, 0);
    expect_reference({5, 0, 17, 3}, {8, 13, true, false}, type, 0);
  }
}

// The grouped product takes fewer than 1,024 experts.
TEST_F(ExpertMlpGpu, TakesMoreExpertsThanAGroupedProduct) {
  Ids rows_u(2100, 0);
  for (size_t expert = 0; expert < rows_u.size(); expert += 1 + expert % 7) {
    if (expert < 1000 || expert > 1900) rows_u[expert] = static_cast<int64_t>(expert % 4);
  }
  for (const int64_t num_behind : {0, 9}) {
    expect_reference(rows_u, {8, 16, false, false}, torch::kBFloat16, num_behind);
  }
}

// Neighbours with about as many rows share a product, filled up to the same number of rows.
TEST_F(ExpertMlpGpu, TakesAnyNumbersOfRows) {
  for (const at::ScalarType type : {torch::kFloat64, torch::kFloat32}) {
    expect_reference({3, 3, 3}, {8, 16, true, true}, type, 0);
    expect_reference({1, 0, 700, 2, 0, 699, 5}, {8, 16, false, true}, type, 4);
  }
}

TEST_F(ExpertMlpGpu, LeavesRowsBehindTheLastExpertAlone) {
  for (const at::ScalarType type : {torch::kFloat32, torch::kBFloat16}) {
    expect_reference({5, 0, 17, 3}, {16, 40, true, true}, type, 9);
    expect_reference({5, 0, 17, 3}, {16, 40, true, false}, type, 9);
  }
}

TEST_F(ExpertMlpGpu, WeighsRowsAndTokensAsTheCpu) {
  const std::vector<Ids> tokens{{0, 2, 3, -1, 0}, {2, 2, 1}};
  Ids token_A;
  for (const Ids& of_expert : tokens) {
    token_A.insert(token_A.end(), of_expert.begin(), of_expert.end());
  }
  for (const at::ScalarType type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16}) {
    for (const bool gate : {false, true}) {
      for (const bool bias : {false, true}) {
        const ExpertWeights own = some_weights(3, {16, 40, bias, gate}, type);
        const auto wide = type == torch::kBFloat16 ? torch::kFloat32 : type;
        const torch::Tensor x = some_numbers({4, 16}, 7).to(type).set_requires_grad(true);
        const torch::Tensor weight = some_numbers({8}, 8).to(wide).set_requires_grad(true);
        const auto results = [&](const auto& place) {
          const ExpertWeights weights = each(own, place);
          const torch::Tensor x_TD = place(x), weight_A = place(weight);
          const torch::Tensor token = place(torch::tensor(token_A, torch::kInt64));
          const RowIndex index = make_row_index(token, 4);
          const torch::Tensor of_tokens = expert_mlp_of_tokens(
              x_TD, {index, weight_A, UnitRows{5, 0, 3}}, weights, Activation::kGelu);
          const torch::Tensor of_rows =
              expert_mlp(gather_rows(x_TD, index), {5, 0, 3}, weights, Activation::kGelu, weight_A);
          const torch::Tensor sum = of_tokens + 2 * sum_rows(of_rows, index);
          sum.backward(place(some_numbers({4, 16}, 9).to(sum.scalar_type()).detach()));
          std::vector<torch::Tensor> all = tensors_of(weights);
          for (torch::Tensor& tensor : all) tensor = tensor.defined() ? tensor.grad() : tensor;
          all.insert(all.end(), {sum.detach(), x_TD.grad(), weight_A.grad()});
          return all;
        };
        const auto expected = results([](const torch::Tensor& tensor) {
          return tensor.is_floating_point() ? reference(tensor) : tensor;
        });
        const auto found = results([&](const torch::Tensor& tensor) { return on_gpu(tensor); });
        for (size_t i = 0; i < expected.size(); ++i) {
          if (!expected[i].defined()) continue;
          // Gradients of weights are float32 sums of what was rounded to the type.
          expect_close(expected[i], found[i].to(type), type == torch::kBFloat16 ? 8 : 256);
        }
      }
    }
  }
}

TEST_F(ExpertMlpGpu, PartsWriteTheGradientsOfTheStack) {
  for (const at::ScalarType type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16}) {
    const auto results = [&](const std::vector<Ids>& rows_of_part) {
      // Gradients of bfloat16 rows are those of float32 weights.
      const auto own = type == torch::kBFloat16 ? torch::kFloat32 : type;
      const ExpertWeights weights = each(some_weights(4, {16, 40, true, true}, own),
                                         [&](const auto& tensor) { return on_gpu(tensor); });
      const torch::Tensor rows = on_gpu(some_numbers({25, 16}, 7).to(type));
      const auto parts = split_experts(weights, static_cast<int64_t>(rows_of_part.size()));
      std::vector<torch::Tensor> y;
      int64_t first = 0;
      for (size_t part = 0; part < parts.size(); ++part) {
        const Ids& rows_u = rows_of_part[part];
        const int64_t count = std::accumulate(rows_u.begin(), rows_u.end(), int64_t{0});
        y.push_back(
            expert_mlp(rows.narrow(0, first, count), rows_u, parts[part], Activation::kGelu));
        first += count;
      }
      torch::cat(y).sum().backward();
      std::vector<torch::Tensor> grads = tensors_of(weights);
      for (torch::Tensor& tensor : grads) tensor = tensor.grad();
      return grads;
    };
    const auto whole = results({{5, 0, 17, 3}}), parts = results({{5, 0}, {17, 3}});
    for (size_t i = 0; i < whole.size(); ++i) {
      if (type == torch::kBFloat16) {
        EXPECT_TRUE(torch::equal(whole[i], parts[i])) << i;
      } else {  // parts have other batches of products, whose sums may have another order
        expect_close(whole[i].cpu(), parts[i], 4);
      }
    }
  }
}

TEST_F(ExpertMlpGpu, GivesTheSameBitsEachTime) {
  const Sizes sizes{64, 128, true, true};
  std::vector<torch::Tensor> first;
  for (int time = 0; time < 3; ++time) {
    const ExpertWeights weights = each(some_weights(3, sizes, torch::kBFloat16),
                                       [&](const auto& tensor) { return on_gpu(tensor); });
    const torch::Tensor rows =
        on_gpu(some_numbers({1000, 64}, 7).to(torch::kBFloat16).set_requires_grad(true));
    expert_mlp(rows, {700, 0, 300}, weights, Activation::kSilu).sum().backward();
    std::vector<torch::Tensor> grads{rows.grad()};
    for (const torch::Tensor& tensor : tensors_of(weights)) grads.push_back(tensor.grad());
    if (time == 0) first = grads;
    for (size_t i = 0; i < grads.size(); ++i) EXPECT_TRUE(torch::equal(first[i], grads[i])) << i;
  }
}

}  // namespace
}  // namespace shoal
