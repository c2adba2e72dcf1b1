#include "launch/train/resume_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/recipe/config_keys.h"
#include "runtime/recipe/config_scalar.h"

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
    Rule{"data.images.path", KeyRole::kFree},  // of a source inside another
    Rule{"data.tokenizer", KeyRole::kFree},    // its identity is in the data's fingerprint
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

std::string text_at(const config::Node& recipe, const std::string& path) {
  const config::Node* node = config::find_node(recipe, path);
  return node != nullptr ? node->text : "";
}

/// Whether an automatic width comes to `number`; of shared experts also where there are none.
bool is_automatic(const config::Node& recipe, const std::string& path, const std::string& number) {
  constexpr std::string_view kShared = ".shared.hidden";
  if (path.ends_with(kShared)) {
    return text_at(recipe, path.substr(0, path.size() - kShared.size()) + ".shared.count") == "0";
  }
  const std::string backbone = text_at(recipe, "model.backbone");
  const bool is_mixer = backbone == "mixer" || backbone == "sparse_mlp";
  std::string problem;
  const int64_t width = config::parse_integer(text_at(recipe, "model.width"), problem).value_or(0);
  if (is_mixer && path == "model.token_hidden") return number == std::to_string(width / 2);
  const bool is_fourfold =
      (is_mixer && path == "model.channel_hidden") || (backbone == "vit" && path == "model.hidden");
  return is_fourfold && number == std::to_string(4 * width);
}

}  // namespace

std::vector<config::Difference> differences_of(const config::Node& checkpoint,
                                               const config::Node& recipe) {
  std::vector<config::Difference> differences = config::diff(checkpoint, recipe);
  std::erase_if(differences, [&recipe](const config::Difference& difference) {
    const auto& [path, before, after] = difference;
    if (!before || !after || (*before == "auto") == (*after == "auto")) return false;
    return is_automatic(recipe, path, *before == "auto" ? *after : *before);
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
