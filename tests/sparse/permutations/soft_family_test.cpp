#include "sparse/permutations/soft_family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <utility>

#include "sparse/permutations/benes.h"
#include "sparse/permutations/doubly_stochastic.h"
#include "sparse/permutations/kaleidoscope.h"
#include "sparse/permutations/permutation.h"
#include "tests/support/gradient_check.h"

// u matrices of a stack  G groups  s members of a group
namespace shoal {
namespace {

using ::testing::HasSubstr;

torch::Tensor eye(int64_t side) { return torch::eye(side, torch::kFloat64); }

/// The explicit P of a Beneš network's logits [K, s / 2], a product of plain matrices.
torch::Tensor benes_matrix(const torch::Tensor& logit) {
  const int64_t side = 2 * logit.size(1), last = logit.size(0) - 1;
  torch::Tensor product = eye(side);
  for (int64_t stage = 0; stage <= last; ++stage) {
    const int64_t reach = side >> (std::min(stage, last - stage) + 1);
    torch::Tensor matrix = eye(side);
    for (int64_t which = 0; which < side / 2; ++which) {
      const int64_t i = which / reach * 2 * reach + which % reach, j = i + reach;
      const torch::Tensor p = logit[stage][which].sigmoid();
      matrix[i][i] = matrix[j][j] = 1.0 - p;
      matrix[i][j] = matrix[j][i] = p;
    }
    product = matrix.mm(product);
  }
  return product;
}

/// p Π + (1 - p) I, with Π of an index.
torch::Tensor mixture(const torch::Tensor& p, const std::vector<int64_t>& index) {
  const torch::Tensor identity = eye(std::ssize(index));
  return p * identity.index_select(0, torch::tensor(index)) + (1.0 - p) * identity;
}

/// The explicit P of a kaleidoscope's logits [levels, 3].
torch::Tensor kaleidoscope_matrix(const torch::Tensor& logit) {
  const int64_t side = int64_t{1} << (logit.size(0) + 1);
  torch::Tensor product = eye(side);
  for (int64_t level = 0; level < logit.size(0); ++level) {
    const int64_t block = side >> level, half = block / 2;
    std::vector<int64_t> split, first, second;
    for (int64_t i = 0; i < side; ++i) {
      const int64_t begin = i / block * block, place = i % block;
      split.push_back(begin + (place < half ? 2 * place : 2 * (place - half) + 1));
      first.push_back(place < half ? begin + half - 1 - place : i);
      second.push_back(place < half ? i : begin + half + block - 1 - place);
    }
    const torch::Tensor p = logit[level].sigmoid();
    product = mixture(p[0], split).mm(product);
    product = mixture(p[2], second).mm(mixture(p[1], first)).mm(product);
  }
  return product;
}

/// A family with P written out of the parameter of one group.
struct FamilyCase {
  std::string name;
  std::shared_ptr<const SoftFamily> family;
  std::function<torch::Tensor(const torch::Tensor&)> matrix_ss;
  bool has_logits = true;

  friend std::ostream& operator<<(std::ostream& out, const FamilyCase& test) {
    return out << test.name;
  }
};

SwitchOptions from_random() {
  SwitchOptions options;
  options.near = FirstSwitches::kRandom;
  return options;
}

std::vector<FamilyCase> family_cases() {
  return {{"DoublyStochastic", std::make_shared<DoublyStochastic>(),
           [](const torch::Tensor& m_ss) { return m_ss; }, false},
          {"Kaleidoscope", std::make_shared<Kaleidoscope>(SwitchOptions()), kaleidoscope_matrix},
          {"KaleidoscopeFromRandom", std::make_shared<Kaleidoscope>(from_random()),
           kaleidoscope_matrix},
          {"Benes", std::make_shared<Benes>(SwitchOptions()), benes_matrix},
          {"BenesFromRandom", std::make_shared<Benes>(from_random()), benes_matrix}};
}

std::vector<FamilyCase> switch_cases() {
  std::vector<FamilyCase> cases = family_cases();
  cases.erase(cases.begin());
  return cases;
}

/// A weight of outputs 8, inputs 16: plain, or a stack of three, stored as experts are or not.
std::vector<Permutation::Place> weights_of_every_kind() {
  std::vector<Permutation::Place> places;
  for (const bool is_stacked : {false, true}) {
    for (const bool is_transposed : {false, true}) {
      for (const auto axis : {PermutationAxis::kInputs, PermutationAxis::kOutputs}) {
        std::vector<int64_t> sizes{8, 16};
        if (is_transposed) std::swap(sizes[0], sizes[1]);
        Parameter weight{"fc.weight", {}, 0, {}, {}};
        if (is_stacked) {
          sizes.insert(sizes.begin(), 3);
          weight = {"experts.*.weight", {}, 1, {5, 2, 7}, {}};
        }
        weight.tensor = testing::some_numbers(sizes, 1);
        places.push_back({weight, is_transposed, axis});
      }
    }
  }
  return places;
}

class SoftFamilies : public ::testing::TestWithParam<FamilyCase> {
 protected:
  const SoftFamily& family() const { return *GetParam().family; }
  /// A parameter [2, 3, shape...] somewhere between permutations.
  torch::Tensor parameter(int64_t side) const {
    std::vector<int64_t> sizes = family().shape(side);
    sizes.insert(sizes.begin(), {2, 3});
    torch::Tensor value = testing::some_numbers(sizes, side).mul(3.0);
    if (!GetParam().has_logits) family().project(value.abs_().add_(0.01));
    return value;
  }
  /// A parameter whose P are permutations.
  torch::Tensor settled(int64_t side) const {
    const torch::Tensor value = parameter(side);
    if (GetParam().has_logits) return value.sign().mul(1000.0);
    const torch::Tensor index =
        testing::some_numbers({2, 3, side}, 5).argsort(/*stable=*/true, 2, /*descending=*/false);
    return torch::zeros_like(value).scatter_(3, index.unsqueeze(3), 1.0);
  }
  /// P [2, 3, s, s].
  torch::Tensor matrix(const torch::Tensor& parameter_uG) const {
    std::vector<torch::Tensor> all;
    for (int64_t i = 0; i < 6; ++i) all.push_back(GetParam().matrix_ss(parameter_uG[i / 3][i % 3]));
    return torch::stack(all).view({2, 3, all[0].size(0), all[0].size(1)});
  }
};

TEST_P(SoftFamilies, ProductsAreThoseOfTheMatrixFromBothSides) {
  for (const int64_t side : {4, 8, 32}) {
    const torch::Tensor value = parameter(side), p = matrix(value), p_t = p.transpose(-1, -2);
    const torch::Tensor tall = testing::some_numbers({2, 3, side, 5}, 1);
    const torch::Tensor wide = testing::some_numbers({2, 3, 5, side}, 2);
    EXPECT_LT(testing::apart(family().product(value, tall, {true, false}), p.matmul(tall)), 1e-12);
    EXPECT_LT(testing::apart(family().product(value, tall, {true, true}), p_t.matmul(tall)), 1e-12);
    EXPECT_LT(testing::apart(family().product(value, wide, {false, false}), wide.matmul(p)), 1e-12);
    EXPECT_LT(testing::apart(family().product(value, wide, {false, true}), wide.matmul(p_t)),
              1e-12);
  }
}

TEST_P(SoftFamilies, RowsAndColumnsSumToOne) {
  const torch::Tensor p = matrix(parameter(16));
  EXPECT_LT(testing::apart(p.sum(-1), torch::ones({2, 3, 16}, torch::kFloat64)), 1e-12);
  if (!GetParam().has_logits) return;  // one sweep leaves the columns inexact
  EXPECT_LT(testing::apart(p.sum(-2), torch::ones({2, 3, 16}, torch::kFloat64)), 1e-12);
}

TEST_P(SoftFamilies, MeasureTheDistanceOfTheMatrix) {
  // 128 members: more columns than are formed at a time.
  for (const int64_t side : {8, 128}) {
    const torch::Tensor value = parameter(side);
    const torch::Tensor expected = (matrix(value) - eye(side)).square().sum({1, 2, 3});
    EXPECT_LT(testing::relative_error(family().squared_distance(value), expected), 1e-12);
  }
}

TEST_P(SoftFamilies, TheirPenaltyIsInZeroToOneAndHasItsGradient) {
  const torch::Tensor value = parameter(8).requires_grad_();
  const auto penalty = [&] { return family().penalty(value).sum(); };
  const torch::Tensor penalty_uG = family().penalty(value).detach();
  EXPECT_EQ(penalty_uG.sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_TRUE(((penalty_uG > 0) & (penalty_uG < 1)).all().item<bool>());
  penalty().backward();
  EXPECT_LT(testing::apart(family().penalty_gradient(value.detach()), value.grad()), 1e-12);
  EXPECT_LT(family().penalty(settled(8)).max().item<double>(), 1e-12);
  const torch::Tensor even =
      GetParam().has_logits ? torch::zeros_like(value) : torch::full_like(value, 1.0 / 8.0);
  EXPECT_LT(testing::apart(family().penalty(even), torch::ones({2, 3}, torch::kFloat64)), 1e-12);
}

TEST_P(SoftFamilies, TheNearestIndexOfASettledMatrixIsItsOwn) {
  const torch::Tensor value = settled(16), index_uGs = family().index(value);
  const torch::Tensor p = matrix(value);
  EXPECT_TRUE(index_uGs.equal(p.argmax(-1)));
  // P Pᵀ = I, and every row has one 1.
  EXPECT_TRUE(p.matmul(p.transpose(-1, -2)).equal(eye(16).expand({2, 3, 16, 16})));
  const torch::Tensor sorted = std::get<0>(index_uGs.sort(2));
  EXPECT_TRUE(sorted.equal(torch::arange(16).expand({2, 3, 16})));
}

TEST_P(SoftFamilies, TheNearestIndexOfAnyMatrixIsAPermutation) {
  const torch::Tensor sorted = std::get<0>(family().index(parameter(32)).sort(2));
  EXPECT_TRUE(sorted.equal(torch::arange(32).expand({2, 3, 32})));
}

TEST_P(SoftFamilies, PermuteWeightsOfEveryKindWithTheirGradients) {
  for (Permutation::Place where : weights_of_every_kind()) {
    where.parameter.tensor.requires_grad_();
    Permutation permutation(where);
    permutation.soften(2, 0.5, 4, GetParam().family);
    const int64_t u = permutation.soft().size(0), side = where.size() / 2;
    const torch::Tensor weight = where.parameter.tensor.detach();
    const torch::Tensor stack = where.parameter.is_stacked() ? weight : weight.unsqueeze(0);
    std::vector<torch::Tensor> all;
    for (int64_t i = 0; i < u; ++i) {
      const torch::Tensor w_mn = where.is_transposed ? stack[i].t() : stack[i];
      const torch::Tensor p_nn =
          torch::block_diag({GetParam().matrix_ss(permutation.soft().detach()[i][0]),
                             GetParam().matrix_ss(permutation.soft().detach()[i][1])});
      ASSERT_EQ(p_nn.size(0), 2 * side);
      const torch::Tensor product =
          where.axis == PermutationAxis::kInputs ? w_mn.mm(p_nn) : p_nn.mm(w_mn);
      all.push_back(where.is_transposed ? product.t() : product);
    }
    const auto product = [&] { return permutation.apply(where.parameter.tensor); };
    EXPECT_LT(testing::apart(product().detach().view(stack.sizes()), torch::stack(all)), 1e-12);
    EXPECT_LT(testing::gradient_error(product, {where.parameter.tensor, permutation.soft()}), 1e-6);
  }
}

TEST_P(SoftFamilies, HardenedEqualsSoftOnceItIsSettled) {
  for (const Permutation::Place& where : weights_of_every_kind()) {
    Permutation permutation(where);
    permutation.soften(2, 0.5, 4, GetParam().family);
    const torch::Tensor soft = permutation.soft().detach();
    soft.copy_(settled(where.size() / 2).flatten(0, 1).narrow(0, 0, 2).expand(soft.sizes()));
    const torch::Tensor before = permutation.apply(where.parameter.tensor).detach();
    const torch::Tensor distance = permutation.distance();
    EXPECT_GT(distance.min().item<double>(), 0.1);
    EXPECT_EQ(permutation.soft_bytes() * soft.size(0), static_cast<int64_t>(soft.nbytes()));
    permutation.harden();
    EXPECT_TRUE(permutation.apply(where.parameter.tensor).equal(before));
    EXPECT_LT(testing::apart(permutation.distance(), distance), 1e-12);
    EXPECT_EQ(permutation.soft_bytes(), 0);
    EXPECT_EQ(permutation.penalty().sum().item<double>(), 0.0);
  }
}

TEST_P(SoftFamilies, BeginAlikeWhereverTheirUnitsAre) {
  const Permutation::Place all = weights_of_every_kind()[4];
  ASSERT_TRUE(all.parameter.is_stacked());
  Permutation permutation(all);
  permutation.soften(2, 0.5, 4, GetParam().family);
  const torch::Tensor soft = permutation.soft().detach().clone();
  EXPECT_FALSE(soft[0].equal(soft[1]));
  EXPECT_FALSE(soft[0][0].equal(soft[0][1]));
  Permutation::Place alone = all;
  alone.parameter.tensor = all.parameter.tensor.narrow(0, 1, 1).contiguous();
  alone.parameter.unit_ids = {2};
  Permutation other(alone);
  other.soften(2, 0.5, 4, GetParam().family);
  EXPECT_TRUE(other.soft().detach()[0].equal(soft[1]));
  other.soften(2, 0.5, 5, GetParam().family);
  EXPECT_FALSE(other.soft().detach()[0].equal(soft[1]));
}

TEST_P(SoftFamilies, ARankWithoutUnitsHasNone) {
  Permutation::Place none = weights_of_every_kind()[4];
  none.parameter.tensor = none.parameter.tensor.narrow(0, 0, 0);
  none.parameter.unit_ids = {};
  Permutation permutation(none);
  permutation.soften(2, 0.5, 4, GetParam().family);
  EXPECT_GT(permutation.soft_bytes(), 0);
  EXPECT_EQ(permutation.apply(none.parameter.tensor).sizes(), none.parameter.tensor.sizes());
  EXPECT_EQ(permutation.penalty().numel(), 0);
  EXPECT_EQ(permutation.distance().numel(), 0);
  permutation.harden();
  EXPECT_EQ(permutation.index().sizes(), (at::IntArrayRef{0, 16}));
}

INSTANTIATE_TEST_SUITE_P(All, SoftFamilies, ::testing::ValuesIn(family_cases()),
                         [](const auto& info) { return info.param.name; });

/// The families of switches alone.
class SwitchFamilies : public SoftFamilies {
 protected:
  /// First parameter of one matrix of 5 groups of 64.
  torch::Tensor first(double mix) const {
    std::vector<int64_t> sizes = family().shape(64);
    sizes.insert(sizes.begin(), 5);
    torch::Tensor logit = torch::empty(sizes, torch::kFloat64);
    family().fill(logit, mix, {1, Purpose::kSparsePattern, 2, 0});
    return logit;
  }
};

TEST_P(SwitchFamilies, BeginWithAShareOfTheirFirstMember) {
  for (const double mix : {0.2, 0.5, 0.8}) {
    const torch::Tensor logit = first(mix), index_Gs = family().index(logit.unsqueeze(0))[0];
    double share = 0.0;
    for (int64_t group = 0; group < 5; ++group) {
      const torch::Tensor p_ss = GetParam().matrix_ss(logit[group]);
      share += p_ss.gather(1, index_Gs[group].unsqueeze(1)).mean().item<double>() / 5;
    }
    EXPECT_NEAR(share, mix, 0.1) << mix;
  }
}

TEST_P(SwitchFamilies, BeginNearTheMemberThatIsAskedFor) {
  const torch::Tensor index_Gs = family().index(first(0.5).unsqueeze(0))[0];
  const bool is_random = GetParam().name.ends_with("FromRandom");
  for (int64_t group = 0; group < 5; ++group) {
    EXPECT_NE(index_Gs[group].equal(torch::arange(64)), is_random);
  }
  EXPECT_NE(index_Gs[0].equal(index_Gs[1]), is_random);
}

TEST_P(SwitchFamilies, SayWhatGroupsFit) {
  const auto misfit = [this](int64_t size, int64_t groups) {
    return family().misfit({size, groups, "inputs"});
  };
  EXPECT_EQ(misfit(64, 1), "");
  EXPECT_EQ(misfit(768, 3), "");
  EXPECT_EQ(misfit(768, 6), "");
  EXPECT_THAT(misfit(768, 1), HasSubstr("768 inputs in 1 group: "));
  EXPECT_THAT(misfit(768, 1), HasSubstr("set groups: 3 (3 groups of 256)"));
  EXPECT_THAT(misfit(768, 5), HasSubstr("set groups: 3 (3 groups of 256)"));
  EXPECT_THAT(misfit(64, 128), HasSubstr("set groups: 1 (1 group of 64)"));
  EXPECT_THAT(misfit(7, 1), HasSubstr("leave the layer out"));
}

INSTANTIATE_TEST_SUITE_P(All, SwitchFamilies, ::testing::ValuesIn(switch_cases()),
                         [](const auto& info) { return info.param.name; });

// W P is to be W with two neighbours exchanged in each four columns, which both families can have.
TEST(SwitchFamily, GradientsLeadToAnOrder) {
  const torch::Tensor order = torch::tensor({0, 2, 1, 3, 4, 6, 5, 7});
  const torch::Tensor weight = testing::some_numbers({1, 1, 12, 8}, 3);
  for (const FamilyCase& test : switch_cases()) {
    if (test.name.ends_with("FromRandom")) continue;  // the nearest order may be another one
    std::vector<int64_t> sizes = test.family->shape(8);
    sizes.insert(sizes.begin(), {1, 1});
    torch::Tensor logit = torch::empty(sizes, torch::kFloat64);
    test.family->fill(logit[0], 0.5, {1, Purpose::kSparsePattern, 2, 0});
    EXPECT_FALSE(test.family->index(logit).flatten().equal(order)) << test.name;
    logit.requires_grad_();
    for (int step = 0; step < 400; ++step) {
      const torch::Tensor product = test.family->product(logit, weight, {false, false});
      (product - weight.index_select(3, order)).square().sum().backward();
      const torch::NoGradGuard no_grad;
      logit.sub_(logit.grad().sign(), 0.05);
      logit.mutable_grad() = torch::Tensor();
    }
    EXPECT_TRUE(test.family->index(logit.detach()).flatten().equal(order)) << test.name;
    EXPECT_LT(test.family->penalty(logit.detach()).item<double>(), 0.1) << test.name;
  }
}

TEST(SwitchFamily, OfKaleidoscopesNeedsFourMembers) {
  const Kaleidoscope kaleidoscope{SwitchOptions()};
  EXPECT_THAT(kaleidoscope.misfit({6, 3, "outputs"}),
              HasSubstr("6 outputs in 3 groups: kaleidoscope needs groups whose size is a power of "
                        "2, at least 4, and none divide them"));
  EXPECT_EQ(Benes(SwitchOptions()).misfit({6, 3, "outputs"}), "");
}

}  // namespace
}  // namespace shoal
