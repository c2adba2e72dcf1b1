#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/config.h"
#include "runtime/parameter.h"
#include "runtime/registry.h"
#include "runtime/state.h"

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
  using Context = std::vector<Parameter>;
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "optimizer";

  /// Parameters that require no gradient are left out. The others must be contiguous, of one
  /// dtype (float32 or float64) and one device; their state has that dtype.
  /// Throws ConfigError if an entry of `no_decay` fits no parameter.
  Optimizer(const OptimizerOptions& options, const Context& parameters);

  /// The recipe's `lr`: the peak that a schedule's factor multiplies.
  double peak_learning_rate() const { return options_.lr; }
  /// Steps taken, skipped ones not among them.
  int64_t steps() const { return steps_; }

  /// One update. Throws TORCH_CHECK naming a parameter that has no gradient.
  void step(double learning_rate);

  /// `optimizer.steps` and, per parameter, `optimizer.m.<name>` and the like.
  void visit_state(StateVisitor& visitor) override;

 protected:
  /// Parameters that share the rules of decay, in one call of a fused kernel.
  struct Batch {
    at::TensorList weights, gradients;
    std::vector<at::TensorList> states;  ///< one a add_state call
    std::vector<int64_t> num_matrices;   ///< stacked in dimension 0 of each weight; else 1
    double weight_decay = 0.0;           ///< 0: neither decay nor trust
  };
  /// `steps()` counts this step already.
  virtual void update(const Batch& batch, double learning_rate) = 0;

  /// One tensor of zeros per parameter, saved under `optimizer.<kind>.`. Constructors only.
  void add_state(std::string kind);

 private:
  Batch batch(int64_t begin, int64_t end, double weight_decay) const;

  OptimizerOptions options_;
  std::vector<Parameter> parameters_;  ///< those that decay first
  int64_t num_decaying_ = 0;
  std::vector<torch::Tensor> weights_, gradients_;
  std::vector<std::pair<std::string, std::vector<torch::Tensor>>> states_;
  int64_t steps_ = 0;
};

}  // namespace shoal
