#include "launch/recipe/resume_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/options/automatic_values.h"
#include "runtime/options/config_keys.h"

namespace shoal {
namespace {

struct Rule {
  std::string_view prefix;
  KeyRole role;
};

// The first rule that matches holds; what no rule names is fixed.
constexpr std::array kRules{
    Rule{"run.seed", KeyRole::kFixed},
    Rule{"run", KeyRole::kFree},
    Rule{"evaluate.stride", KeyRole::kWarned},  // scores of two strides do not compare
    Rule{"evaluate", KeyRole::kFree},
    Rule{"checkpoint", KeyRole::kFree},
    Rule{"parallel", KeyRole::kFree},
    Rule{"data.path", KeyRole::kFree},
    Rule{"data.images.path", KeyRole::kFree},     // of a source inside another
    Rule{"data.tokenizer", KeyRole::kFree},       // its identity is in the data's fingerprint
    Rule{"data.valid", KeyRole::kWarned},         // only evaluations read it
    Rule{"data.images.valid", KeyRole::kWarned},  // likewise
    Rule{"data.prefetch", KeyRole::kFree},
    Rule{"data.workers", KeyRole::kFree},
    Rule{"model.init_from", KeyRole::kFree},
    Rule{"model.upcycle", KeyRole::kFree},
    Rule{"train.duration", KeyRole::kFree},
    Rule{"train.recompute", KeyRole::kFree},
    Rule{"train.log_every", KeyRole::kFree},
    Rule{"train.clip_norm", KeyRole::kWarned},
    Rule{"train.clip_norm_type", KeyRole::kWarned},
    Rule{"train.max_nonfinite_steps", KeyRole::kWarned},
    Rule{"optimizer.lr", KeyRole::kWarned},
    Rule{"optimizer.weight_decay", KeyRole::kWarned},
    Rule{"schedule", KeyRole::kWarned},
    Rule{"sparsity.execution", KeyRole::kWarned},  // sums in another order
};

/// Keys at any depth of the model that change speed only. An exchange's payload changes values.
constexpr std::array<std::string_view, 2> kFreeEnds{".exchange.chunks", ".exchange.hierarchical"};

}  // namespace

std::vector<config::Difference> differences_of(Recipe checkpoint, Recipe recipe, ToNode to_node) {
  const auto differences = [&, &type = config::type_of<Recipe>()] {
    return config::diff(to_node(type, &checkpoint), to_node(type, &recipe));
  };
  std::vector<config::Difference> written = differences();
  for (Recipe* side : {&checkpoint, &recipe}) {
    config::resolve_all(ResolvedOn::kComparison, config::type_of<Recipe>(), side);
  }
  const std::vector<config::Difference> real = differences();
  std::erase_if(written, [&real](const config::Difference& difference) {
    return std::ranges::find(real, difference.path, &config::Difference::path) == real.end();
  });
  return written;
}

std::vector<config::Difference> evaluated_differences(const Recipe& checkpoint,
                                                      const Recipe& recipe) {
  auto differences = differences_of(checkpoint, recipe, config::to_evaluated_node);
  std::erase_if(differences, [](const config::Difference& difference) {
    return !config::is_at_or_below(difference.path, "model");
  });
  return differences;
}

KeyRole role_of_key(const std::string& path) {
  for (const std::string_view end : kFreeEnds) {
    if (path.ends_with(end)) return KeyRole::kFree;
  }
  for (const Rule& rule : kRules) {
    if (config::is_at_or_below(path, rule.prefix)) return rule.role;
  }
  return KeyRole::kFixed;
}

bool changes_scores(const std::vector<config::Difference>& differences) {
  constexpr std::array<std::string_view, 3> kOfEvaluations{"data.valid", "data.images.valid",
                                                           "evaluate.stride"};
  return std::ranges::any_of(differences, [&](const config::Difference& difference) {
    return std::ranges::any_of(kOfEvaluations, [&](std::string_view prefix) {
      return config::is_at_or_below(difference.path, prefix);
    });
  });
}

std::string describe(const std::vector<config::Difference>& differences) {
  size_t width = 0;
  for (const auto& difference : differences) width = std::max(width, difference.path.size());
  std::string text;
  for (const auto& [path, before, after] : differences) {
    text += fmt::format("\n  {:<{}}  checkpoint: {}   recipe: {}", path, width,
                        before.value_or("(none)"), after.value_or("(none)"));
  }
  return text;
}

std::vector<config::Difference> check_resume(const std::vector<config::Difference>& differences,
                                             bool override_fixed) {
  std::vector<config::Difference> fixed, warned;
  for (const config::Difference& difference : differences) {
    const KeyRole role = role_of_key(difference.path);
    if (role == KeyRole::kFixed) fixed.push_back(difference);
    if (role == KeyRole::kWarned) warned.push_back(difference);
  }
  if (!fixed.empty() && !override_fixed) {
    throw Error(ExitCode::kMismatch,
                "the recipe differs from the one this run was started with:" + describe(fixed),
                "change these keys back, start a new run (another run.name), or accept the "
                "difference with --override");
  }
  warned.insert(warned.end(), fixed.begin(), fixed.end());
  return warned;
}

}  // namespace shoal
