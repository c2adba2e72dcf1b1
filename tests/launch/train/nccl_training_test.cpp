#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "parallel/nccl/nccl_communicator.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/thread_communicator.h"
#include "tests/support/train_harness.h"

namespace shoal::testing {
namespace {

using ::testing::IsEmpty;
using Overrides = std::vector<std::string>;

constexpr int64_t kStepsOverNccl = 3, kRanks = 4;

/// Everything but control goes by NCCL, which is a scripted one on CPU memory.
TrainingTrace train_by_nccl(const Overrides& overrides) {
  FakeNccl fake;
  TrainingTrace trace;
  std::mutex mutex;
  run_owning_ranks(kRanks, [&](std::unique_ptr<Communicator> world) {
    auto nccl = make_nccl_communicator(world->split(0, world->rank()), backend_of(fake.join()));
    const bool is_first = world->rank() == 0;
    TrainingTrace own = train_and_trace(kEqualityRecipe, overrides, kStepsOverNccl,
                                        std::move(world), std::move(nccl));
    const std::lock_guard lock(mutex);
    if (is_first) trace = std::move(own);
  });
  EXPECT_EQ(fake.num_aborted(), 0);
  EXPECT_EQ(fake.num_destroyed(), fake.num_made());
  return trace;
}

TEST(NcclTrainingRanks, EqualsOneRank) {
  const std::string global = channel_moe("name: sigmoid, k: 2, bias: {rate: 0.05}",
                                         "{name: importance, weight: 0.1, scope: global}");
  const Overrides hierarchical{"model.sparse.channel_moe.exchange={hierarchical: true, chunks: 2}",
                               "parallel.ranks_per_node=2"};
  const Overrides sharded{"parallel.shard_optimizer=true",
                          "optimizer={name: lamb, lr: 1e-2, weight_decay: 0.1}"};
  for (const Overrides& what : {noisy(), padded(), Overrides{global}, Overrides{vit(kBlockNexus)},
                                with_hspmn(text_data(), "rate: 0.4", kBlockExperts)}) {
    const TrainingTrace expected =
        train_and_trace(kEqualityRecipe, what, kStepsOverNccl, make_self_communicator());
    for (const char* ranks : {"4", "2"}) {
      SCOPED_TRACE(fmt::format("{} on {} expert ranks", what.front(), ranks));
      const std::string layout = fmt::format("parallel.expert_ranks={}", ranks);
      EXPECT_THAT(differences(expected, train_by_nccl(joined(what, {layout})), 1e-12), IsEmpty());
    }
  }
  const Overrides in_parts{"model.sparse.channel_moe.exchange.chunks=2"};
  for (const Overrides& how : {hierarchical, in_parts, sharded}) {
    SCOPED_TRACE(how.front());
    const bool is_sharded = how == sharded;
    const TrainingTrace expected =
        train_and_trace(kEqualityRecipe, is_sharded ? Overrides{sharded.back()} : Overrides{},
                        kStepsOverNccl, make_self_communicator());
    const std::string layout = fmt::format("parallel.expert_ranks={}", how == hierarchical ? 4 : 2);
    EXPECT_THAT(differences(expected, train_by_nccl(joined(how, {layout})), 1e-12), IsEmpty());
  }
}

}  // namespace
}  // namespace shoal::testing
