#include "runtime/optim/parameter_rules.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {

void ParameterRule::validate(Problems& problems) const {
  if (!lr_scale && !weight_decay && !freeze) {
    problems.add("", "sets nothing; expected lr_scale, weight_decay or freeze");
  }
}

ParameterSettings settings_of(const std::vector<ParameterRule>& rules, const Parameter& parameter) {
  ParameterSettings settings;
  for (const ParameterRule& rule : rules) {
    if (!matches_glob(whole_name(parameter), rule.match)) continue;
    if (rule.lr_scale) settings.lr_scale = rule.lr_scale;
    if (rule.weight_decay) settings.weight_decay = rule.weight_decay;
    if (rule.freeze) settings.freeze = *rule.freeze;
  }
  return settings;
}

void check_rules(const std::vector<ParameterRule>& rules,
                 const std::vector<Parameter>& parameters) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < rules.size(); ++i) {
    const bool matches_one = std::any_of(
        parameters.begin(), parameters.end(),
        [&](const Parameter& parameter) { return matches_glob(parameter.name, rules[i].match); });
    if (matches_one) continue;
    lines.push_back("optimizer.rules[" + std::to_string(i) + "].match: no parameter's name fits '" +
                    rules[i].match + "'; all units of a stack have one, with * for the id");
  }
  if (!lines.empty()) throw ConfigError(lines);
}

void freeze_parameters(const std::vector<ParameterRule>& rules,
                       const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters) {
    if (settings_of(rules, parameter).freeze) parameter.tensor.set_requires_grad(false);
  }
}

}  // namespace shoal
