#pragma once

#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "sparse/kernels/sparse_layout.h"
#include "sparse/patterns/diagonal.h"
#include "tests/support/gradient_check.h"

// T tokens  m outputs  n inputs
namespace shoal::testing {

/// Some of the numbers 0 to `count` - 1 in another order, without a pattern.
inline torch::Tensor some_order(int64_t count, int64_t seed) {
  return some_numbers({count}, seed).argsort();
}

/// A mask, the layout that is made of it, and whether inputs or outputs are in another order.
struct SparseCase {
  std::string name;
  torch::Tensor mask_mn;
  SparseOrder order;
  std::function<SparseLayoutPtr(const torch::Tensor&, const SparseOrder&)> make;

  SparseLayoutPtr layout() const { return make(mask_mn, order); }
  /// The layout on a GPU, with its mask and orders there.
  SparseLayoutPtr layout_on(const torch::Device& device) const {
    const auto moved = [&](const torch::Tensor& places) {
      return places.defined() ? places.to(device) : places;
    };
    return make(mask_mn.to(device), {moved(order.inputs), moved(order.outputs)});
  }
  int64_t rows() const { return mask_mn.size(0); }
  int64_t columns() const { return mask_mn.size(1); }
  /// P S Q from S, as a dense matrix.
  torch::Tensor dense(const torch::Tensor& weight_mn) const {
    torch::Tensor result = weight_mn * mask_mn;
    if (order.inputs.defined()) result = result.index_select(1, order.inputs.argsort());
    if (order.outputs.defined()) result = result.index_select(0, order.outputs);
    return result;
  }
};

inline torch::Tensor mask_of_density(int64_t m, int64_t n, double density, int64_t seed) {
  return some_numbers({m, n}, seed) * 0.5 + 0.5 < density;
}

inline torch::Tensor diagonal_mask(int64_t m, int64_t n, const std::vector<int64_t>& offsets) {
  torch::Tensor mask = torch::zeros({m * n}, torch::kBool);
  const torch::Tensor places = Diagonals{m, n}.places(torch::kCPU);
  for (const int64_t offset : offsets) mask.index_fill_(0, places[offset], true);
  return mask.view({m, n});
}

inline torch::Tensor block_mask(const torch::Tensor& is_on, int64_t size) {
  return is_on.repeat_interleave(size, 0).repeat_interleave(size, 1);
}

inline std::vector<SparseCase> unpermuted_sparse_cases() {
  torch::Tensor empty_rows = mask_of_density(37, 53, 0.3, 1);
  empty_rows.narrow(0, 5, 20).fill_(false);
  const auto blocks_of = [](int64_t size) {
    return [size](const torch::Tensor& mask, const SparseOrder& order) {
      return make_block_layout(mask, size, order);
    };
  };
  return {
      {"csr wide, rows without weights", empty_rows, {}, make_csr_layout},
      {"csr tall", mask_of_density(53, 37, 0.4, 2), {}, make_csr_layout},
      {"csr one row", mask_of_density(1, 19, 0.5, 3), {}, make_csr_layout},
      {"csr dense", mask_of_density(20, 33, 2.0, 4), {}, make_csr_layout},
      {"csr without weights", mask_of_density(6, 7, -1.0, 4), {}, make_csr_layout},
      {"diagonals square", diagonal_mask(40, 40, {0, 3, 4, 21, 39}), {}, make_diagonal_layout},
      {"diagonals wide", diagonal_mask(21, 50, {1, 30, 31, 49}), {}, make_diagonal_layout},
      {"diagonals tall", diagonal_mask(50, 21, {0, 25, 33, 49}), {}, make_diagonal_layout},
      {"diagonals one row", diagonal_mask(1, 19, {2, 18}), {}, make_diagonal_layout},
      {"diagonals one column", diagonal_mask(19, 1, {2, 18}), {}, make_diagonal_layout},
      {"diagonals dense", diagonal_mask(3, 4, {0, 1, 2, 3}), {}, make_diagonal_layout},
      {"diagonals in two windows",
       diagonal_mask(18, 1100, {5, 500, 600, 1099}),
       {},
       make_diagonal_layout},
      {"blocks of 16 wide", block_mask(mask_of_density(3, 5, 0.5, 5), 16), {}, blocks_of(16)},
      {"blocks of 32 tall", block_mask(mask_of_density(4, 2, 0.6, 6), 32), {}, blocks_of(32)},
      {"blocks of 48 dense", block_mask(mask_of_density(1, 2, 2.0, 7), 48), {}, blocks_of(48)},
      {"blocks, rows without weights",
       block_mask(torch::tensor({{0, 1}, {0, 0}, {1, 1}}) == 1, 16),
       {},
       blocks_of(16)},
  };
}

/// Each as it is, and with inputs, outputs or both in another order.
inline std::vector<SparseCase> sparse_cases() {
  std::vector<SparseCase> all;
  for (const SparseCase& plain : unpermuted_sparse_cases()) {
    const torch::Tensor inputs = some_order(plain.columns(), 8),
                        outputs = some_order(plain.rows(), 9);
    all.push_back(plain);
    for (const auto& [name, order] : {std::pair{", inputs permuted", SparseOrder{inputs, {}}},
                                      std::pair{", outputs permuted", SparseOrder{{}, outputs}},
                                      std::pair{", both permuted", SparseOrder{inputs, outputs}}}) {
      all.push_back(plain);
      all.back().name += name;
      all.back().order = order;
    }
  }
  return all;
}

/// x, S and b of a case that require gradients.
struct SparseProblem {
  torch::Tensor x, weight, bias;

  SparseProblem(const SparseCase& c, int64_t tokens, torch::Dtype dtype = torch::kFloat64)
      : x(some_numbers({tokens, c.columns()}, 10, dtype).requires_grad_()),
        weight(some_numbers({c.rows(), c.columns()}, 11, dtype).requires_grad_()),
        bias(some_numbers({c.rows()}, 12, dtype).requires_grad_()) {}

  /// The problem on another device.
  SparseProblem on(const torch::Device& device) const {
    SparseProblem moved = *this;
    for (torch::Tensor* tensor : {&moved.x, &moved.weight, &moved.bias}) {
      *tensor = tensor->detach().to(device).requires_grad_();
    }
    return moved;
  }

  /// Gradients of x, S and b, of a sum with uneven weights of the output, and the output.
  std::vector<torch::Tensor> results(const torch::Tensor& y) const {
    const torch::Tensor weight_of_y = some_numbers(y.sizes(), 13, y.scalar_type()).to(y.device());
    const torch::Tensor objective = (y * weight_of_y).sum();
    std::vector<torch::Tensor> all = torch::autograd::grad({objective}, {x, weight, bias});
    all.push_back(y.detach());
    return all;
  }
};

}  // namespace shoal::testing
