#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/module/parameter.h"
#include "runtime/module/state.h"
#include "runtime/optim/state_shards.h"
#include "runtime/recipe/config.h"
#include "runtime/recipe/registry.h"

namespace shoal {

/// Options of every optimizer.
struct OptimizerOptions {
  double lr = 1e-3;
  double weight_decay = 0.0;
  std::vector<std::string> no_decay;

  static constexpr auto fields() {
    return std::tuple{
        field("lr", &OptimizerOptions::lr, "peak learning rate", above(0.0)),
        field("weight_decay", &OptimizerOptions::weight_decay,
              "decay of matrices; vectors and scalars never decay", at_least(0.0)),
        field("no_decay", &OptimizerOptions::no_decay,
              "parameters whose name contains one of these do not decay either", not_empty())};
  }
};

/// Options of the optimizers that average gradients and their squares.
struct AdamOptions : OptimizerOptions {
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;

  static constexpr auto fields() {
    return std::tuple_cat(OptimizerOptions::fields(),
                          std::tuple{field("betas", &AdamOptions::betas,
                                           "decay rates of the averages of gradient and square",
                                           in_range(0.0, below(1.0))),
                                     field("eps", &AdamOptions::eps,
                                           "added to the root of the average square", above(0.0))});
  }
  void validate(Problems& problems) const;
};

/// Updates parameters from their gradients, which are sums over ranks and clipped already. A
/// step with a non-finite gradient is the caller's to leave out. Registered under `optimizer`.
class Optimizer : public Stateful {
 public:
  /// What is updated: parameters, or this rank's pieces of them with the `shards` they come from.
  struct Context {
    Context(std::vector<Parameter> parameters = {}, StateShards* shards = nullptr)
        : parameters(std::move(parameters)), shards(shards) {}
    std::vector<Parameter> parameters;
    StateShards* shards;  ///< not owned; null for whole parameters
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "optimizer";

  /// Parameters that require no gradient are left out. The others must be contiguous, of one
  /// dtype (float32 or float64) and one device; their state has that dtype.
  /// Throws ConfigError if an entry of `no_decay` fits no parameter; not so for pieces.
  Optimizer(const OptimizerOptions& options, const Context& context);

  /// The recipe's `lr`: the peak that a schedule's factor multiplies.
  double peak_learning_rate() const { return options_.lr; }
  /// Steps taken, skipped ones not among them.
  int64_t steps() const { return steps_; }

  /// One update; collective over the shards. Throws TORCH_CHECK naming a parameter that has no
  /// gradient.
  void step(double learning_rate);

  /// `optimizer.steps` and, per parameter, `optimizer.m.<name>` and the like. Collective over the
  /// shards: a cut matrix is listed whole, by the rank that has its first element.
  void visit_state(StateVisitor& visitor) override;
  void tensors_loaded() override;
  /// Of this rank's state.
  int64_t state_bytes() const;

 protected:
  /// Parameters that share the rules of decay, in one call of a fused kernel.
  struct Batch {
    at::TensorList weights, gradients;
    std::vector<at::TensorList> states;  ///< one a add_state call
    std::vector<int64_t> num_matrices;   ///< stacked in dimension 0 of each weight; else 1
    double weight_decay = 0.0;           ///< 0: neither decay nor trust
    size_t first = 0;                    ///< place of its first weight among all
  };
  /// `steps()` counts this step already. With shards the batch may be empty.
  virtual void update(const Batch& batch, double learning_rate) = 0;

  /// One tensor of zeros per parameter, saved under `optimizer.<kind>.`. Constructors only.
  void add_state(std::string kind);
  StateShards* shards() const { return shards_; }
  /// Sums of the batch's rows over the pieces of each matrix. Collective.
  torch::Tensor sum_over_pieces(const torch::Tensor& values_PN, const Batch& batch) const;

 private:
  Batch batch(int64_t begin, int64_t end, double weight_decay) const;

  void visit_pieces(StateVisitor& visitor, size_t kind);
  std::vector<torch::Tensor> in_context_order(const std::vector<torch::Tensor>& tensors) const;

  OptimizerOptions options_;
  StateShards* shards_;
  std::vector<size_t> order_;          ///< places of parameters_ in the context
  std::vector<Parameter> parameters_;  ///< those that decay first
  int64_t num_decaying_ = 0;
  std::vector<torch::Tensor> weights_, gradients_;
  std::vector<std::pair<std::string, std::vector<torch::Tensor>>> states_;
  std::vector<std::vector<torch::Tensor>> wholes_;  ///< cut matrices of each state as last visited
  int64_t steps_ = 0;
};

}  // namespace shoal
