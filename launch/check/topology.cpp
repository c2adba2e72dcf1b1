#include "launch/check/topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>

#include "moe/exchange/exchange_options.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/base/error.h"
#include "runtime/base/integers.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

/// Names of stages by their number of units.
using StagesOfCount = std::map<int64_t, std::vector<std::string>>;

StagesOfCount by_count(const std::vector<MoeStageInfo>& stages) {
  StagesOfCount counts;
  for (const MoeStageInfo& stage : stages) counts[stage.num_units].push_back(stage.name);
  return counts;
}

/// True if so many expert ranks can share the units of all stages.
bool can_share(const StagesOfCount& stages, int64_t ranks, bool must_divide) {
  return std::ranges::all_of(stages, [&](const auto& entry) {
    return entry.first >= ranks && (!must_divide || entry.first % ranks == 0);
  });
}

/// Adds a problem for each layer with chunks that would get no routing group: where the rows of a
/// layer may not be cut by unit, chunks are whole routing groups.
void check_chunks(const Recipe& recipe, const std::vector<MoeStageInfo>& stages, int64_t world,
                  Problems& problems) {
  const TrainOptions& train = recipe.train;
  const ParallelOptions& parallel = recipe.parallel;
  const int64_t groups = train.batch / train.accumulate / train.group;
  const int64_t least = groups / world;
  if (parallel.expert_ranks == 1) return;  // nothing travels
  for (const MoeStageInfo& stage : stages) {
    // What other placements and nodes come to is not known yet.
    const bool by_unit = parallel.placement == PlacementRule::kContiguous &&
                         cuts_by_unit(stage.num_chunks, stage.is_hierarchical,
                                      stage.num_units / *parallel.expert_ranks);
    if (stage.num_chunks == 1 || by_unit || stage.num_chunks <= least) continue;
    problems.add("batch",
                 fmt::format("{} cuts its tokens into exchange.chunks = {} parts of whole routing "
                             "groups, but of the {} of {} samples in a micro-step a rank of {} "
                             "may have {}; {}train.group, or raise train.batch",
                             stage.name, stage.num_chunks, counted(groups, "group"), train.group,
                             world, least == 0 ? "none" : "only " + std::to_string(least),
                             least == 0 ? "set chunks to 1, lower " : "lower chunks or "));
  }
}

/// What a recipe asks of the ranks.
struct RankRules {
  const ParallelOptions& parallel;
  bool knows_stages = false;  ///< false if the model has mistakes
  std::optional<int64_t> known_world;
  int64_t world = 1;  ///< by default expert_ranks
  StagesOfCount stages;

  /// True if units must divide evenly. Without a logged load, by_load places as contiguous does.
  bool must_divide() const {
    return !parallel.uneven && parallel.placement != PlacementRule::kByCost;
  }
  /// Divisors of the world that can share the units of all stages.
  std::vector<int64_t> valid_expert_ranks() const {
    std::vector<int64_t> valid = divisors(world);
    std::erase_if(valid, [&](int64_t ranks) { return !can_share(stages, ranks, must_divide()); });
    return valid;
  }
  /// "valid expert_ranks for 4 ranks: 1, 2, 4".
  std::string choices() const {
    return fmt::format("{}: {}",
                       knows_stages ? "valid expert_ranks for " + counted(world, "rank")
                                    : "divisors of " + std::to_string(world),
                       fmt::join(valid_expert_ranks(), ", "));
  }
  /// "; or start 2 or 4 ranks", where the stages could be shared then.
  std::string other_worlds() const {
    const int64_t ranks = *parallel.expert_ranks;
    if (!knows_stages || !can_share(stages, ranks, must_divide())) return "";
    const int64_t above = (world / ranks + 1) * ranks;
    return world > ranks ? fmt::format("; or start {} or {} ranks", above - ranks, above)
                         : fmt::format("; or start {} ranks", ranks);
  }
};

/// Adds where the rule of topology is broken, with what would satisfy it.
void check_grid(const RankRules& rules, Problems& problems) {
  const ParallelOptions& parallel = rules.parallel;
  for (const auto& [key, what] : topology_problems(rules.known_world, *parallel.expert_ranks,
                                                   parallel.ranks_per_node.value_or(0))) {
    std::string hint;
    if (key == "expert_ranks") {
      hint = "; " + rules.choices() + rules.other_worlds();
    } else if (rules.known_world && rules.world % *parallel.ranks_per_node != 0) {
      hint =
          fmt::format("; divisors of {}: {}", rules.world, fmt::join(divisors(rules.world), ", "));
    }
    problems.add(key, what + hint);
  }
}

/// Adds a problem for each stage of which an expert rank would have no unit, or, unless the recipe
/// allows it, more units than another.
void check_units_of_ranks(const RankRules& rules, Problems& problems) {
  const int64_t ranks = *rules.parallel.expert_ranks;
  for (const auto& [num_units, names] : rules.stages) {
    if (num_units < ranks) {
      problems.add(
          "expert_ranks",
          fmt::format("{} of {} cannot be spread over {} expert ranks, some would hold "
                      "none; {}",
                      counted(num_units, "unit"), join_words(names), ranks, rules.choices()));
    } else if (rules.must_divide() && num_units % ranks != 0) {
      problems.add("expert_ranks",
                   fmt::format("the units of {} do not divide evenly: {}; {}; or "
                               "parallel.uneven=true",
                               join_words(names), quotient(num_units, ranks), rules.choices()));
    }
  }
}

}  // namespace

int64_t choose_expert_ranks(const ParallelOptions& parallel,
                            const std::vector<MoeStageInfo>& stages, int64_t world) {
  const RankRules rules{parallel, /*knows_stages=*/true, world, world, by_count(stages)};
  std::vector<int64_t> valid = rules.valid_expert_ranks();
  std::erase_if(valid, [&](int64_t ranks) {
    return !topology_problems(world, ranks, parallel.ranks_per_node.value_or(0)).empty();
  });
  return stages.empty() || valid.empty() ? 1 : valid.back();
}

void check_ranks(const LoadedRecipe& loaded, const std::vector<MoeStageInfo>* stages,
                 std::optional<int64_t> world, bool knows_train, config::Diagnostics& diagnostics) {
  config::LocatedProblems problems(loaded.document.root, "parallel", diagnostics);
  const ParallelOptions& parallel = loaded.options.parallel;
  RankRules rules{parallel, stages != nullptr, world, world.value_or(*parallel.expert_ranks), {}};
  if (stages != nullptr) rules.stages = by_count(*stages);
  check_grid(rules, problems);
  check_units_of_ranks(rules, problems);
  if (stages == nullptr || !knows_train) return;
  config::LocatedProblems train_problems(loaded.document.root, "train", diagnostics);
  check_chunks(loaded.options, *stages, rules.world, train_problems);
}

void check_topology(const LoadedRecipe& loaded, const std::vector<MoeStageInfo>& stages,
                    int64_t world) {
  config::Diagnostics diagnostics;
  check_ranks(loaded, &stages, world, /*knows_train=*/true, diagnostics);
  diagnostics.throw_if_any(ExitCode::kTopology);
}

bool has_hierarchical_exchange(const std::vector<MoeStageInfo>& stages) {
  return std::ranges::any_of(stages, &MoeStageInfo::is_hierarchical);
}

int64_t ranks_per_node(const ParallelOptions& parallel, const std::vector<MoeStageInfo>& stages,
                       Communicator& world) {
  if (!has_hierarchical_exchange(stages)) return 0;
  if (parallel.ranks_per_node) return *parallel.ranks_per_node;
  const LocalRank own = local_rank_of(world);
  const int64_t is_apart = own.rank == world.rank() % own.size ? 0 : 1;
  const torch::Tensor facts = torch::tensor({own.size, -own.size, is_apart}, torch::kInt64);
  all_reduce(world, facts, ReduceOp::kMax);
  const int64_t most = facts[0].item<int64_t>(), least = -facts[1].item<int64_t>();
  const bool are_apart = facts[2].item<int64_t>() != 0;
  if (most == least && !are_apart) return own.size;
  if (most == least) {
    throw ConfigError(
        "parallel.ranks_per_node: neighbouring ranks are on different machines, a hierarchical "
        "exchange needs them together; start with mpirun --map-by slot, srun --distribution=block",
        ExitCode::kTopology);
  }
  throw ConfigError(
      fmt::format("parallel.ranks_per_node: machines run {} to {} ranks each, a hierarchical "
                  "exchange needs equally many; start equally many, or set ranks_per_node",
                  least, most),
      ExitCode::kTopology);
}

}  // namespace shoal
