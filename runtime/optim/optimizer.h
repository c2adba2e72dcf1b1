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
#include "runtime/optim/parameter_rules.h"
#include "runtime/optim/state_shards.h"
#include "runtime/options/config.h"
#include "runtime/options/registry.h"

namespace shoal {

/// Options of every optimizer.
struct OptimizerOptions {
  double lr = 1e-3;
  double weight_decay = 0.0;
  std::vector<std::string> no_decay;
  std::vector<ParameterRule> rules;

  static constexpr auto fields() {
    return std::tuple{
        field("lr", &OptimizerOptions::lr, "peak learning rate", above(0.0),
              on_resume(OnResume::kWarned)),
        field("weight_decay", &OptimizerOptions::weight_decay,
              "decay of matrices; vectors and scalars decay by optimizer.rules alone",
              at_least(0.0), on_resume(OnResume::kWarned)),
        field("no_decay", &OptimizerOptions::no_decay,
              "parameters whose name contains one of these do not decay either", not_empty()),
        field("rules", &OptimizerOptions::rules,
              "exceptions by parameter name; later ones override earlier ones, key by key")};
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

/// Updates parameters from their gradients, which are summed over ranks and clipped before. The
/// caller skips steps with a non-finite gradient. Registered under `optimizer`; options derive from
/// OptimizerOptions.
///
/// All lists are in the order of the context's parameters (or pieces), without those that require
/// no gradient.
class Optimizer : public Stateful {
 public:
  /// The parameters to update, or this rank's pieces of them and the `shards` they belong to.
  struct Context {
    Context(std::vector<Parameter> parameters = {}, StateShards* shards = nullptr,
            std::vector<Parameter> buffers = {})
        : parameters(std::move(parameters)), shards(shards), buffers(std::move(buffers)) {}
    std::vector<Parameter> parameters;
    StateShards* shards;             ///< not owned; null for whole parameters
    std::vector<Parameter> buffers;  ///< may be matched by `rules` beside the parameters
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "optimizer";

  /// Parameters that require gradients must be contiguous, of one dtype (float32 or float64) and
  /// one device; their state has that dtype. Throws ConfigError if an entry of `no_decay` or
  /// `rules` matches no parameter, or if none is trained; pieces are not checked.
  Optimizer(const OptimizerOptions& options, const Context& context);

  /// The recipe's `lr`: the peak that a schedule's factor multiplies.
  double peak_learning_rate() const { return options_.lr; }
  /// Steps taken, skipped ones not among them.
  int64_t steps() const { return steps_; }

  /// Makes one update; collective over the shards. Throws TORCH_CHECK on a parameter without
  /// gradient.
  void step(double learning_rate);

  /// Lists `optimizer.steps` and, for each parameter, `optimizer.m.<name>` and so on. Collective
  /// over the shards: a cut matrix is listed whole, by the rank that has its first element.
  void visit_state(StateVisitor& visitor) override;
  void tensors_loaded() override;
  /// The kinds of state, a number of each for every weight: "m", "v".
  std::vector<std::string> state_kinds() const;
  /// The kinds among them that count the steps of each weight from where it grew last.
  virtual std::vector<std::string> entry_kinds() const { return {}; }
  /// What this rank holds of one kind of state ("m", "v") of a parameter: the tensor, or those of
  /// its pieces here in the order of their elements. Throws TORCH_CHECK if there is no such kind.
  std::vector<torch::Tensor> state_of(const std::string& kind, const std::string& parameter) const;

 protected:
  /// Parameters with equal weight decay and learning rate, updated by one call of a fused kernel.
  struct Batch {
    double weight_decay = 0.0;  ///< 0: no decay, no trust ratio
    double lr_scale = 1.0;
    std::vector<int64_t> places;  ///< of its parameters among all; for the lists below
    std::vector<torch::Tensor> weights, gradients;
    std::vector<std::vector<torch::Tensor>> states;  ///< one list for each add_state call
    std::vector<int64_t> num_matrices;  ///< matrices stacked in dimension 0 of each weight, or 1
  };
  /// Updates the weights; `steps()` already counts this step. With shards, ranks may have different
  /// batches, or none.
  virtual void update(const std::vector<Batch>& batches, double learning_rate) = 0;

  /// Adds a tensor of zeros a parameter, saved under `optimizer.<kind>.`. For constructors only.
  void add_state(std::string kind);
  StateShards* shards() const { return shards_; }
  int64_t num_parameters() const { return static_cast<int64_t>(parameters_.size()); }

 private:
  Batch& batch_for(const Parameter& parameter);
  void visit_pieces(StateVisitor& visitor, size_t kind);

  OptimizerOptions options_;
  StateShards* shards_;
  std::vector<Parameter> parameters_;
  std::vector<Batch> batches_;
  std::vector<std::pair<std::string, std::vector<torch::Tensor>>> states_;
  std::vector<std::vector<torch::Tensor>> wholes_;  ///< cut matrices, as last visited
  int64_t steps_ = 0;
};

/// The rules of the chosen optimizer; empty without a choice.
const std::vector<ParameterRule>& rules_of(const Choice<Optimizer>& choice);

}  // namespace shoal
