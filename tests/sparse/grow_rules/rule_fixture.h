#pragma once

#include <memory>
#include <string>
#include <tuple>

#include "runtime/options/config_reader.h"
#include "sparse/grow_rules/grow_rule.h"

namespace shoal::testing {

/// A rule as a recipe names it, of a training of 1,000 steps, ten an epoch.
inline std::shared_ptr<const GrowRule> make_rule(const std::string& recipe) {
  struct Section {
    Choice<GrowRule> rule;
    static constexpr auto fields() { return std::tuple{field("rule", &Section::rule, "a rule")}; }
  };
  const StepScale scale{.samples_per_epoch = 10, .samples_per_step = 1, .total_steps = 1000};
  return Registry<GrowRule>::create(
      config::load_options_text<Section>("rule: " + recipe, "recipe").options.rule, {scale});
}

}  // namespace shoal::testing
