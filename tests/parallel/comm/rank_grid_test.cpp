#include "parallel/comm/rank_grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/error.h"
#include "tests/support/forwarding_communicator.h"
#include "tests/support/ranks.h"
#include "tests/support/thread_communicator.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::run_owning_ranks;
using testing::run_ranks;

TEST(RankGridRanks, PutsExpertNeighboursTogetherAndEqualShardsInReplica) {
  run_owning_ranks(4, [](std::unique_ptr<Communicator> world) {
    const int64_t rank = world->rank();
    const RankGrid grid = make_rank_grid(std::move(world), 2);
    EXPECT_EQ(grid.world->size(), 4);
    EXPECT_EQ(grid.expert->size(), 2);
    EXPECT_EQ(grid.replica->size(), 2);
    EXPECT_EQ(grid.expert->rank(), rank % 2);
    EXPECT_EQ(grid.replica->rank(), rank / 2);

    const torch::Tensor members = torch::zeros({2}, torch::kLong);
    const torch::Tensor own = torch::full({1}, rank, torch::kLong);
    grid.expert->start_all_gather(own, members, {1, 1}).wait();
    EXPECT_TRUE(at::equal(members, torch::tensor({rank / 2 * 2, rank / 2 * 2 + 1})));
    grid.replica->start_all_gather(own, members, {1, 1}).wait();
    EXPECT_TRUE(at::equal(members, torch::tensor({rank % 2, rank % 2 + 2})));
  });
}

TEST(RankGridRanks, CutsExpertGroupsIntoNodesAndRails) {
  struct Shape {
    int64_t expert_ranks, ranks_per_node, node, inter_node;
  };
  for (const Shape& shape : {Shape{4, 2, 2, 2}, Shape{4, 1, 1, 4}, Shape{2, 4, 2, 1},
                             Shape{4, 0, 4, 1}, Shape{1, 2, 1, 1}}) {
    run_owning_ranks(4, [&](std::unique_ptr<Communicator> world) {
      const RankGrid grid =
          make_rank_grid(std::move(world), shape.expert_ranks, shape.ranks_per_node);
      if (shape.inter_node == 1) {
        EXPECT_EQ(grid.num_nodes(), 1);
        EXPECT_TRUE(!grid.intra_node && !grid.inter_node) << "groups that nobody asked for";
        return;
      }
      EXPECT_EQ(grid.intra_node->size(), shape.node);
      EXPECT_EQ(grid.inter_node->size(), shape.inter_node);
      EXPECT_EQ(grid.num_nodes(), shape.inter_node);
      EXPECT_EQ(grid.intra_node->rank(), grid.expert->rank() % shape.node);
      EXPECT_EQ(grid.inter_node->rank(), grid.expert->rank() / shape.node);
    });
  }
}

TEST(RankGridRanks, RefusesNodesThatAreCutOrUnequal) {
  for (const auto& [world_size, expert_ranks, ranks_per_node] :
       {std::array<int64_t, 3>{4, 2, 3}, std::array<int64_t, 3>{6, 2, 3}}) {
    run_owning_ranks(world_size, [&](std::unique_ptr<Communicator> world) {
      EXPECT_THROW(make_rank_grid(std::move(world), expert_ranks, ranks_per_node), ConfigError);
    });
  }
}

TEST(RankGridRanks, RefusesExpertRanksThatDoNotDivideTheWorld) {
  run_owning_ranks(4, [](std::unique_ptr<Communicator> world) {
    try {
      make_rank_grid(std::move(world), 3);
      ADD_FAILURE() << "3 divides 4";
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.code(), ExitCode::kTopology);
      EXPECT_THAT(error.lines(),
                  ::testing::ElementsAre("parallel.expert_ranks: world = expert_ranks x replicas, "
                                         "but 4 / 3 = 1.333"));
    }
  });
  EXPECT_THROW(make_rank_grid(make_self_communicator(), 0), ConfigError);
  EXPECT_THROW(make_rank_grid(make_self_communicator(), 2), ConfigError);
}

TEST(Topology, TheRuleNamesTheKeyAndTheArithmetic) {
  const auto problems = [](std::optional<int64_t> world, int64_t expert, int64_t node) {
    std::vector<std::string> lines;
    for (const auto& [key, what] : topology_problems(world, expert, node)) {
      lines.push_back(key + ": " + what);
    }
    return lines;
  };
  using ::testing::ElementsAre;
  using ::testing::IsEmpty;
  EXPECT_THAT(problems(8, 4, 2), IsEmpty());
  EXPECT_THAT(problems(8, 2, 4), IsEmpty());
  EXPECT_THAT(problems(6, 2, 0), IsEmpty());
  EXPECT_THAT(problems(std::nullopt, 6, 3), IsEmpty());
  EXPECT_THAT(problems(8, 3, 5),
              ElementsAre("expert_ranks: world = expert_ranks x replicas, but 8 / 3 = 2.667",
                          "ranks_per_node: nodes of equal size are needed, but 8 / 5 = 1.6"));
  const std::string parts =
      "ranks_per_node: 4 expert ranks would have unequal parts on nodes of 6; one must divide the "
      "other";
  EXPECT_THAT(problems(12, 4, 6), ElementsAre(parts));
  EXPECT_THAT(problems(std::nullopt, 4, 6), ElementsAre(parts));
  EXPECT_THAT(problems(4, 0, 0), ElementsAre("expert_ranks: expected at least 1"));
}

TEST(AgreementRanks, ListsWhoHasWhat) {
  run_ranks(4, [](Communicator& world) {
    EXPECT_NO_THROW(require_equal_on_ranks(world, {{"recipe", "abc"}, {"binary", "1.0"}}));
    try {
      require_equal_on_ranks(world,
                             {{"recipe", "abc"}, {"binary", world.rank() == 3 ? "1.1" : "1.0"}});
      ADD_FAILURE() << "accepted two binaries";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kVersionSkew);
      EXPECT_THAT(error.what(), HasSubstr("binary: ranks 0-2 have 1.0; rank 3 has 1.1"));
      EXPECT_THAT(error.what(), Not(HasSubstr("recipe")));
    }
  });
}

TEST(RankGrid, HasFailedWithAnyOfItsGroups) {
  testing::self_grid().throw_if_failed();
  for (const auto group : {&RankGrid::world, &RankGrid::gpu_world, &RankGrid::expert,
                           &RankGrid::replica, &RankGrid::intra_node, &RankGrid::inter_node}) {
    RankGrid grid = testing::self_grid();
    grid.*group = std::make_unique<testing::FailedCommunicator>(make_self_communicator());
    EXPECT_THROW(grid.throw_if_failed(), CommError);
  }
}

}  // namespace
}  // namespace shoal
