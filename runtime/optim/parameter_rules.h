#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/module/parameter.h"
#include "runtime/options/config.h"

namespace shoal {

/// An entry of `optimizer.rules`: how the parameters it matches are trained. Unset keys are
/// inherited from earlier rules, then from the optimizer's own keys.
struct ParameterRule {
  std::string match;
  std::optional<double> lr_scale;
  std::optional<double> weight_decay;
  std::optional<bool> freeze;

  static constexpr auto fields() {
    return std::tuple{
        required("match", &ParameterRule::match,
                 "parameters and buffers by name, * for any characters, ? for one: \"*.bias\"",
                 not_empty()),
        field("lr_scale", &ParameterRule::lr_scale, "factor for the learning rate", above(0.0),
              unset_word("inherit")),
        field("weight_decay", &ParameterRule::weight_decay,
              "weight decay of all that it matches, including vectors and scalars", at_least(0.0),
              unset_word("inherit")),
        field(
            "freeze", &ParameterRule::freeze,
            "keep the initial values; a module's buffers are also frozen if all its parameters are",
            unset_word("inherit"))};
  }
  void validate(Problems& problems) const;
};

/// Name that `match` is compared with. For a piece of a parameter, as a rank holds it with sharded
/// optimizer state, this is the whole parameter's name.
inline const std::string& whole_name(const Parameter& parameter) {
  return parameter.piece ? parameter.piece->parameter : parameter.name;
}

/// Returns the keys that the matching rules set, later rules first; `match` is empty.
ParameterRule settings_of(const std::vector<ParameterRule>& rules, const Parameter& parameter);

/// Throws ConfigError with a line `optimizer.rules[i].match: ...` for each rule that matches no
/// parameter and, with `freeze`, no buffer either.
void check_rules(const std::vector<ParameterRule>& rules, const std::vector<Parameter>& parameters,
                 const std::vector<Parameter>& buffers);

/// Sets requires_grad to false for parameters that the rules freeze: they get no gradient and no
/// optimizer state, and take no part in sums over ranks or in the gradient norm.
void freeze_parameters(const std::vector<ParameterRule>& rules,
                       const std::vector<Parameter>& parameters);

/// The buffers that keep their values: those that a rule freezes, and those of modules with all
/// parameters frozen, unless a rule that matches the buffer has `freeze: false`. A module without
/// parameters counts as part of its parent.
std::vector<Parameter> frozen_buffers(const std::vector<ParameterRule>& rules,
                                      const std::vector<Parameter>& parameters,
                                      const std::vector<Parameter>& buffers);

}  // namespace shoal
