#include "tests/support/model_fill.h"

#include <string>

#include "runtime/module/module.h"
#include "tests/support/gradient_check.h"

namespace shoal::testing {
namespace {

int64_t seed_of(const std::string& name) {
  uint64_t hash = 1469598103934665603ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return static_cast<int64_t>(hash % 9973);
}

void fill(torch::Tensor tensor, const std::string& name, double scale) {
  const bool is_norm_weight = name.ends_with("norm.weight");
  tensor.copy_(some_numbers(tensor.sizes(), seed_of(name)) * scale + (is_norm_weight ? 1.0 : 0.0));
}

}  // namespace

void fill_parameters(torch::nn::Module& module, double scale) {
  const torch::NoGradGuard no_grad;
  for (const Parameter& parameter : parameters_of(module)) {
    if (!parameter.is_stacked()) {
      fill(parameter.tensor, parameter.name, scale);
      continue;
    }
    for (size_t i = 0; i < parameter.unit_ids.size(); ++i) {
      fill(parameter.tensor[static_cast<int64_t>(i)],
           name_of_unit(parameter.name, parameter.unit_ids[i]), scale);
    }
  }
}

}  // namespace shoal::testing
