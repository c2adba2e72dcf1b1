#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/options/config.h"
#include "runtime/options/config_reader.h"
#include "runtime/random/random.h"
#include "sparse/patterns/pattern.h"

namespace shoal::testing {

/// A pattern as a recipe names it, `{name: block, size: 2}`, of the layer `fc`.
inline std::shared_ptr<const Pattern> make_pattern(const std::string& recipe, int64_t rows,
                                                   int64_t columns, double density) {
  struct Section {
    Choice<Pattern> pattern;
    static constexpr auto fields() {
      return std::tuple{field("pattern", &Section::pattern, "a pattern")};
    }
  };
  const auto loaded = config::load_options_text<Section>("pattern: " + recipe, "recipe");
  return Registry<Pattern>::create(loaded.options.pattern, {rows, columns, density, "fc"});
}

/// Uniform numbers, other ones for each `number`.
inline torch::Tensor uniform_numbers(int64_t count, uint64_t number) {
  const torch::Tensor x = torch::empty({count}, torch::kFloat32);
  fill_uniform(x, {number, Purpose::kTest});
  return x;
}

inline torch::Tensor bools(const std::vector<int64_t>& values) {
  return torch::tensor(values).to(torch::kBool);
}

/// bool [rows, columns], the entries that are on.
inline torch::Tensor mask_of(const std::vector<std::vector<int64_t>>& rows) {
  std::vector<torch::Tensor> result;
  for (const auto& row : rows) result.push_back(bools(row));
  return torch::stack(result);
}

}  // namespace shoal::testing
