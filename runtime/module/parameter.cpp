#include "runtime/module/parameter.h"

#include <cmath>

#include "runtime/random/random.h"

namespace shoal {
namespace {

void fill(torch::Tensor tensor, const Init& init, const std::string& name, uint64_t seed) {
  torch::NoGradGuard no_grad;
  if (init.kind == Init::Kind::kConstant) {
    tensor.fill_(init.scale);
  } else {
    const Stream stream{seed, Purpose::kInit, hash_name(name)};
    if (init.kind == Init::Kind::kUniform) {
      fill_uniform(tensor, stream);
      tensor.mul_(2).sub_(1).mul_(init.scale);
    } else {
      fill_normal(tensor, stream);
      tensor.mul_(init.scale);
    }
  }
}

}  // namespace

Init Init::xavier_uniform(int64_t fan_in, int64_t fan_out) {
  return uniform(std::sqrt(6.0 / static_cast<double>(fan_in + fan_out)));
}

Init Init::fan_in_uniform(int64_t fan_in) {
  return uniform(1.0 / std::sqrt(static_cast<double>(fan_in)));
}

std::string name_of_unit(const std::string& name, int64_t unit_id) {
  const size_t star = name.find('*');
  if (star == std::string::npos) return name;
  return name.substr(0, star) + std::to_string(unit_id) + name.substr(star + 1);
}

std::string name_of_row(const Parameter& parameter, int64_t row) {
  if (!parameter.is_stacked()) return parameter.name;
  return name_of_unit(parameter.name, parameter.unit_ids[static_cast<size_t>(row)]);
}

void initialise(const std::vector<Parameter>& parameters, uint64_t seed) {
  for (const Parameter& parameter : parameters) {
    if (!parameter.is_stacked()) {
      fill(parameter.tensor, parameter.init, parameter.name, seed);
      continue;
    }
    for (size_t row = 0; row < parameter.unit_ids.size(); ++row) {
      fill(parameter.tensor.detach()[static_cast<int64_t>(row)], parameter.init,
           name_of_unit(parameter.name, parameter.unit_ids[row]), seed);
    }
  }
}

}  // namespace shoal
