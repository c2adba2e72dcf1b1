#include "sparse/permutations/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "runtime/base/error.h"
#include "sparse/permutations/doubly_stochastic.h"
#include "tests/support/gradient_check.h"

// u matrices  m outputs  n inputs
namespace shoal {
namespace {

/// A weight of outputs 4, inputs 6: plain, or a stack of three, stored as experts are or not.
Permutation::Place place(bool is_stacked, bool is_transposed, PermutationAxis axis) {
  std::vector<int64_t> sizes{4, 6};
  if (is_transposed) std::swap(sizes[0], sizes[1]);
  Parameter weight{"fc.weight", {}, 0, {}, {}};
  if (is_stacked) {
    sizes.insert(sizes.begin(), 3);
    weight = {"experts.*.weight", {}, 1, {5, 2, 7}, {}};
  }
  weight.tensor = testing::some_numbers(sizes, 1);
  return {weight, is_transposed, axis};
}

std::vector<Permutation::Place> all_places() {
  std::vector<Permutation::Place> places;
  for (const bool is_stacked : {false, true}) {
    for (const bool is_transposed : {false, true}) {
      for (const auto axis : {PermutationAxis::kInputs, PermutationAxis::kOutputs}) {
        places.push_back(place(is_stacked, is_transposed, axis));
      }
    }
  }
  return places;
}

/// P [n, n] of one index, P x = x[p].
torch::Tensor matrix_of(const torch::Tensor& index_n) {
  return torch::eye(index_n.size(0), torch::kFloat64).index_select(0, index_n);
}

/// M [n, n] of one matrix of the stack, from its groups.
torch::Tensor matrix_of(const Permutation& permutation, int64_t i) {
  const torch::Tensor m_Gss = permutation.soft().detach()[i];
  const int64_t side = m_Gss.size(-1), n = m_Gss.size(0) * side;
  torch::Tensor whole_nn = torch::zeros({n, n}, torch::kFloat64);
  for (int64_t group = 0; group < m_Gss.size(0); ++group) {
    const auto part = at::indexing::Slice(group * side, (group + 1) * side);
    whole_nn.index_put_({part, part}, m_Gss[group]);
  }
  return whole_nn;
}

/// W P or P W by plain products, P given for each matrix, in the parameter's storage.
torch::Tensor expected(const Permutation& permutation,
                       const std::function<torch::Tensor(int64_t)>& matrix_nn) {
  const Permutation::Place& place = permutation.place();
  const bool is_stacked = place.parameter.is_stacked();
  std::vector<torch::Tensor> all;
  for (int64_t i = 0; i < (is_stacked ? 3 : 1); ++i) {
    const torch::Tensor& weight = place.parameter.tensor;
    torch::Tensor w_mn = is_stacked ? weight[i] : weight;
    if (place.is_transposed) w_mn = w_mn.t();
    w_mn = place.axis == PermutationAxis::kInputs ? w_mn.mm(matrix_nn(i)) : matrix_nn(i).mm(w_mn);
    all.push_back(place.is_transposed ? w_mn.t() : w_mn);
  }
  return is_stacked ? torch::stack(all) : all[0];
}

TEST(Permutation, IsThePlainProductHardAndSoft) {
  for (const Permutation::Place& where : all_places()) {
    Permutation permutation(where);
    EXPECT_TRUE(permutation.apply(where.parameter.tensor).equal(where.parameter.tensor));
    permutation.shuffle(3);
    const torch::Tensor index_un = permutation.index();
    EXPECT_TRUE(
        permutation.apply(where.parameter.tensor).equal(expected(permutation, [&](int64_t i) {
          return matrix_of(index_un[i]);
        })));
    for (const int64_t groups : {1, 2}) {
      permutation.soften(groups, 0.5, 4, std::make_shared<DoublyStochastic>());
      const torch::Tensor product = permutation.apply(where.parameter.tensor);
      EXPECT_LT(testing::apart(
                    product.detach(),
                    expected(permutation, [&](int64_t i) { return matrix_of(permutation, i); })),
                1e-12);
    }
  }
}

TEST(Permutation, HasTheGradientsOfTheProduct) {
  for (Permutation::Place where : all_places()) {
    where.parameter.tensor.requires_grad_();
    Permutation permutation(where);
    const auto product = [&] { return permutation.apply(where.parameter.tensor); };
    permutation.shuffle(3);
    EXPECT_LT(testing::gradient_error(product, {where.parameter.tensor}), 1e-6);
    permutation.soften(2, 0.5, 4, std::make_shared<DoublyStochastic>());
    EXPECT_LT(testing::gradient_error(product, {where.parameter.tensor, permutation.soft()}), 1e-6);
  }
}

TEST(Permutation, HardenedEqualsSoftOnceItIsOne) {
  for (const Permutation::Place& where : all_places()) {
    Permutation permutation(where);
    permutation.soften(2, 0.5, 4, std::make_shared<DoublyStochastic>());
    const torch::Tensor soft = permutation.soft().detach();
    // A cycle within each group of each matrix, other ones for others.
    for (int64_t i = 0; i < soft.size(0); ++i) {
      for (int64_t group = 0; group < 2; ++group) {
        soft[i][group].copy_(torch::eye(soft.size(-1)).roll(1 + (i + group) % 2, 0));
      }
    }
    const torch::Tensor before = permutation.apply(where.parameter.tensor).detach();
    const torch::Tensor distance = permutation.distance();
    permutation.harden();
    EXPECT_FALSE(permutation.is_soft());
    EXPECT_TRUE(permutation.apply(where.parameter.tensor).equal(before));
    EXPECT_LT(testing::apart(permutation.distance(), distance), 1e-12);
  }
}

TEST(Permutation, MeasuresItsDistanceFromTheIdentity) {
  Parameter weight{"fc.weight", torch::zeros({3, 4}, torch::kFloat64), 0, {}, {}};
  Permutation permutation({weight, false, PermutationAxis::kInputs});
  const auto distance_of = [&](const std::vector<int64_t>& index) {
    permutation.set_index(torch::tensor(index).unsqueeze(0));
    return permutation.distance().item<double>();
  };
  EXPECT_EQ(distance_of({0, 1, 2, 3}), 0.0);
  EXPECT_NEAR(distance_of({1, 0, 2, 3}), std::sqrt(0.5), 1e-12);
  EXPECT_EQ(distance_of({1, 2, 3, 0}), 1.0);
}

TEST(Permutation, DrawsOtherOrdersForOtherMatricesWhereverTheyAre) {
  Permutation permutation(place(true, true, PermutationAxis::kInputs));
  permutation.shuffle(3);
  const torch::Tensor index_un = permutation.index();
  EXPECT_FALSE(index_un[0].equal(index_un[1]));
  // Unit 2 alone, as another rank may have it.
  Permutation::Place alone = place(true, true, PermutationAxis::kInputs);
  alone.parameter.tensor = alone.parameter.tensor.narrow(0, 1, 1).contiguous();
  alone.parameter.unit_ids = {2};
  Permutation other(alone);
  other.shuffle(3);
  EXPECT_TRUE(other.index()[0].equal(index_un[1]));
  EXPECT_TRUE(std::get<0>(index_un.sort(1)).equal(torch::arange(6).expand({3, 6})))
      << "a permutation each";
}

TEST(Permutation, TakesTheMemoryOfItsGroupsAndNoneWhenHard) {
  Permutation permutation(place(false, false, PermutationAxis::kInputs));
  permutation.soften(1, 0.5, 4, std::make_shared<DoublyStochastic>());
  EXPECT_EQ(permutation.soft_bytes(), 6 * 6 * 8);
  EXPECT_EQ(permutation.soft().nbytes(), 6u * 6u * 8u);
  permutation.soften(3, 0.5, 4, std::make_shared<DoublyStochastic>());
  EXPECT_EQ(permutation.soft_bytes(), 6 * 6 * 8 / 3);
  permutation.harden();
  EXPECT_EQ(permutation.soft_bytes(), 0);
  EXPECT_FALSE(permutation.soft().defined());
}

/// Names and values, one visitor for both ways.
class Items : public StateVisitor {
 public:
  std::map<std::string, torch::Tensor> saved;
  bool is_loading = false;

  void tensor(const StateTensor& item) override {
    if (is_loading) {
      item.value.copy_(saved.at(item.name));
    } else {
      saved[item.name] = item.value.clone();
    }
  }
  void integer(const std::string&, int64_t&) override {}
  void real(const std::string&, double&) override {}
  void text(const std::string&, std::string&) override {}
};

void load(Permutation& permutation, Items& items) {
  items.is_loading = true;
  permutation.fit_to([&](const std::string& name) { return items.saved.contains(name); });
  permutation.visit_state(items);
  permutation.tensors_loaded();
}

TEST(Permutation, BecomesWhatWasSaved) {
  const Permutation::Place where = place(false, false, PermutationAxis::kInputs);
  Permutation saved(where);
  saved.soften(2, 0.5, 4, std::make_shared<DoublyStochastic>());
  Items soft, hard;
  saved.visit_state(soft);
  saved.harden();
  saved.visit_state(hard);
  EXPECT_TRUE(soft.saved.contains("sparsity.soft.fc.weight"));
  EXPECT_TRUE(hard.saved.contains("sparsity.index.fc.weight"));

  Permutation other(where);
  other.soften(2, 0.5, 9, std::make_shared<DoublyStochastic>());
  load(other, hard);
  EXPECT_FALSE(other.is_soft());
  EXPECT_TRUE(other.index().equal(saved.index()));
  load(other, soft);
  EXPECT_TRUE(other.is_soft());
  other.harden();
  EXPECT_TRUE(other.index().equal(saved.index()));

  Permutation never_soft(where);
  load(never_soft, hard);
  EXPECT_TRUE(never_soft.index().equal(saved.index()));
  EXPECT_THROW(load(never_soft, soft), Error);

  hard.saved["sparsity.index.fc.weight"].fill_(1);
  EXPECT_THROW(load(other, hard), CheckpointError);
}

}  // namespace
}  // namespace shoal
