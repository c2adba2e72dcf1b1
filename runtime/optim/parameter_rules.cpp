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

ParameterRule settings_of(const std::vector<ParameterRule>& rules, const Parameter& parameter) {
  ParameterRule settings;
  for (const ParameterRule& rule : rules) {
    if (!matches_glob(whole_name(parameter), rule.match)) continue;
    if (rule.lr_scale) settings.lr_scale = rule.lr_scale;
    if (rule.weight_decay) settings.weight_decay = rule.weight_decay;
    if (rule.freeze) settings.freeze = rule.freeze;
  }
  return settings;
}

void check_rules(const std::vector<ParameterRule>& rules, const std::vector<Parameter>& parameters,
                 const std::vector<Parameter>& buffers) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < rules.size(); ++i) {
    const auto is_matched = [&](const Parameter& one) {
      return matches_glob(one.name, rules[i].match);
    };
    const bool fits_buffers = std::ranges::any_of(buffers, is_matched);
    if (std::ranges::any_of(parameters, is_matched) || (fits_buffers && rules[i].freeze)) continue;
    lines.push_back("optimizer.rules[" + std::to_string(i) + "].match: no parameter's name fits '" +
                    rules[i].match +
                    (fits_buffers ? "'; buffers are not trained, they take freeze alone"
                                  : "'; all units of a stack have one, with * for the id"));
  }
  if (!lines.empty()) throw ConfigError(lines);
}

void freeze_parameters(const std::vector<ParameterRule>& rules,
                       const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters) {
    if (settings_of(rules, parameter).freeze.value_or(false)) {
      parameter.tensor.set_requires_grad(false);
    }
  }
}

std::vector<Parameter> frozen_buffers(const std::vector<ParameterRule>& rules,
                                      const std::vector<Parameter>& parameters,
                                      const std::vector<Parameter>& buffers) {
  std::vector<Parameter> frozen;
  for (const Parameter& buffer : buffers) {
    std::optional<bool> freeze = settings_of(rules, buffer).freeze;
    std::string module = buffer.name;
    while (!freeze && module.find('.') != std::string::npos) {
      module.resize(module.rfind('.'));
      for (const Parameter& own : parameters) {
        if (!own.name.starts_with(module + ".")) continue;
        freeze = freeze.value_or(true) && settings_of(rules, own).freeze.value_or(false);
      }
    }
    if (freeze.value_or(false)) frozen.push_back(buffer);
  }
  return frozen;
}

}  // namespace shoal
