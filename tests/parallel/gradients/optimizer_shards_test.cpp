#include "parallel/gradients/optimizer_shards.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "runtime/optim/parameter_rules.h"
#include "tests/support/parallel_checks.h"
#include "tests/support/ranks.h"

// P pieces  N numbers of each
namespace shoal {
namespace {

using testing::make_parameter;
using testing::run_grid;
using testing::wave;
using torch::Tensor;

/// A parameter with the same numbers on all ranks.
Parameter filled(const std::string& name, const std::vector<int64_t>& sizes,
                 const std::vector<int64_t>* unit_ids = nullptr) {
  const torch::NoGradGuard no_grad;
  Parameter parameter = make_parameter(name, sizes, unit_ids);
  parameter.tensor.copy_(wave(parameter.tensor.sizes(), 1));
  return parameter;
}

/// On three replicas: `long` is cut over all of them, `stack` has uneven matrices in the share of
/// one or two, and most ranks have no element of `tiny`, which has a bucket to itself.
struct Shards {
  explicit Shards(RankGrid& grid)
      : sync(group_parameters({tiny, stack, whole}, grid), *grid.world, /*bucket_bytes=*/1000,
             /*shards=*/true),
        shards(sync) {}

  std::vector<int64_t> units{4, 7};
  Parameter tiny = filled("tiny", {3});
  Parameter stack = filled("stack.*.w", {5, 4}, &units);
  Parameter whole = filled("long", {9, 13});
  GradientSync sync;
  OptimizerShards shards;
};

TEST(OptimizerShardsRanks, EachElementIsInOnePieceOfOneRank) {
  run_grid(1, 3, [](RankGrid& grid) {
    Shards all(grid);
    const Tensor held = torch::zeros({3 + 40 + 117}, torch::kDouble);
    const std::map<std::string, int64_t> first{
        {"tiny", 0}, {"stack.4.w", 3}, {"stack.7.w", 23}, {"long", 43}};
    for (const Parameter& piece : all.shards.pieces()) {
      held.narrow(0, first.at(piece.name) + piece.piece->begin, piece.tensor.numel()) += 1;
      EXPECT_EQ(piece.piece->parameter.find('*') != std::string::npos,
                piece.name.starts_with("stack"));
    }
    const bool has_all = held.eq(1).all().item<bool>();
    EXPECT_FALSE(has_all);
    all_reduce(*grid.world, held);
    EXPECT_TRUE(held.eq(1).all().item<bool>());
  });
}

TEST(OptimizerShardsRanks, WeightsGoOutInPiecesAndComeBackWhole) {
  run_grid(1, 3, [](RankGrid& grid) {
    Shards all(grid);
    const torch::NoGradGuard no_grad;
    const Tensor before = all.whole.tensor.clone(), tiny = all.tiny.tensor.clone();
    for (const Parameter& piece : all.shards.pieces()) piece.tensor.mul_(2);
    all.shards.gather_weights();
    EXPECT_TRUE(torch::equal(all.whole.tensor, before * 2));
    EXPECT_TRUE(torch::equal(all.tiny.tensor, tiny * 2));
  });
}

TEST(OptimizerShardsRanks, GatherMakesMatricesWholeAndScatterCutsThem) {
  run_grid(1, 3, [](RankGrid& grid) {
    Shards all(grid);
    std::vector<Tensor> numbers;
    for (const Parameter& piece : all.shards.pieces()) {
      numbers.push_back(piece.tensor.detach() * 3);
    }
    const std::vector<Tensor> wholes = all.shards.gather(numbers);
    ASSERT_EQ(wholes.size(), numbers.size());
    int64_t num_wholes = 0;
    for (size_t p = 0; p < wholes.size(); ++p) {
      const Parameter& piece = all.shards.pieces()[p];
      EXPECT_EQ(wholes[p].defined(), piece.is_cut() && piece.piece->begin == 0) << piece.name;
      if (!wholes[p].defined()) continue;
      ++num_wholes;
      if (piece.name == "long") {
        EXPECT_TRUE(torch::equal(wholes[p], all.whole.tensor.detach().flatten() * 3));
      }
    }
    const Tensor total = torch::tensor({num_wholes});
    all_reduce(*grid.world, total);
    EXPECT_GE(total.item<int64_t>(), 1) << "nothing was cut";

    std::vector<Tensor> back;
    for (const Tensor& number : numbers) back.push_back(number.clone());
    for (size_t p = 0; p < back.size(); ++p) {
      if (all.shards.pieces()[p].is_cut()) back[p].zero_();
    }
    all.shards.scatter(wholes, back);
    for (size_t p = 0; p < back.size(); ++p) EXPECT_TRUE(torch::equal(back[p], numbers[p]));
  });
}

TEST(OptimizerShardsRanks, RangesOfAllRanksMakeEachParameterWhole) {
  run_grid(1, 3, [](RankGrid& grid) {
    Shards all(grid);
    int64_t elements = 0;
    for (const Parameter& parameter : {all.tiny, all.stack, all.whole}) {
      const Tensor flat = parameter.tensor.detach().view({-1});
      const OptimizerShards::Range range = all.shards.range_of(parameter.name);
      const int64_t length = range.gradient.numel();
      range.gradient.copy_(flat.narrow(0, range.begin, length));
      EXPECT_TRUE(torch::equal(all.shards.gather_ranges(parameter.name, range.gradient), flat));
      for (const Parameter& piece : all.shards.pieces()) {
        if (whole_name(piece) != parameter.name) continue;
        EXPECT_TRUE(torch::equal(piece.tensor.grad(), piece.tensor.detach())) << piece.name;
      }
      elements += length;
    }
    const Tensor total = torch::tensor({elements});
    all_reduce(*grid.world, total);
    EXPECT_EQ(total.item<int64_t>(), 3 + 40 + 117);
    EXPECT_THROW(all.shards.range_of("other"), c10::Error);
  });
}

TEST(OptimizerShardsRanks, SumsOverThePiecesOfAMatrixAndNoOther) {
  run_grid(1, 3, [](RankGrid& grid) {
    Shards all(grid);
    std::vector<double> own;
    for (const Parameter& piece : all.shards.pieces()) {
      own.push_back(static_cast<double>(piece.tensor.numel()));
    }
    const Tensor elements_P1 = torch::tensor(own, torch::kDouble).unsqueeze(1);
    all.shards.sum(elements_P1);
    for (size_t p = 0; p < own.size(); ++p) {
      const Parameter& piece = all.shards.pieces()[p];
      EXPECT_EQ(elements_P1[static_cast<int64_t>(p)].item<double>(),
                static_cast<double>(c10::multiply_integers(piece.piece->sizes)))
          << piece.name;
    }
  });
}

}  // namespace
}  // namespace shoal
