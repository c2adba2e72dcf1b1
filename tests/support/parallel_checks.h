#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/gradients/parameter_group.h"
#include "runtime/module/parameter.h"

namespace shoal::testing {

/// A promise of what is built on communicators, as a check for any implementation and 1 to 4 ranks.
/// Every rank calls it.
struct ParallelCheck {
  std::string name;
  std::function<void(std::unique_ptr<Communicator> world)> check;
  friend std::ostream& operator<<(std::ostream& out, const ParallelCheck& check) {
    return out << check.name;
  }
};

const std::vector<ParallelCheck>& parallel_checks();

/// Compares the gradient of sum over ranks of loss(x) with central differences, in float64. `loss`
/// is called equally often on all ranks; x may have any shape, also no elements, on each.
void expect_true_gradient(Communicator& world, const torch::Tensor& x,
                          const std::function<torch::Tensor(const torch::Tensor&)>& loss);

/// Numbers in [-1, 1] that differ from rank to rank, float64.
torch::Tensor wave(at::IntArrayRef sizes, int64_t rank);

/// The gradients' norm as the ranks agree on it in a step. Collective over the grid's world.
double agreed_norm(const std::vector<ParameterGroup>& groups, RankGrid& grid);

/// A trainable parameter of zeros; unit_ids given: a stack of matrices of `sizes`.
Parameter make_parameter(const std::string& name, std::vector<int64_t> sizes,
                         const std::vector<int64_t>* unit_ids = nullptr,
                         at::ScalarType dtype = torch::kDouble);

}  // namespace shoal::testing
