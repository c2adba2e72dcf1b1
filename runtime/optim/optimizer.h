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
              "weight decay of matrices; vectors and scalars decay only by optimizer.rules",
              at_least(0.0), on_resume(OnResume::kWarned)),
        field("no_decay", &OptimizerOptions::no_decay,
              "parameters whose names contain one of these do not decay either", not_empty()),
        field("rules", &OptimizerOptions::rules,
              "exceptions by parameter name; later ones override earlier ones, key by key")};
  }
};

/// Options of AdamW and LAMB, which average gradients and their squares.
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

/// Updates parameters from their gradients, which the caller has summed over ranks and clipped. The
/// caller skips steps with a gradient that is not finite. The recipe's section `optimizer` chooses
/// a derived class, whose Options derive from OptimizerOptions.
///
/// With sharded state (ZeRO-1) a rank updates only its pieces: flat parts of matrices. Lists with
/// an entry per parameter or piece have the context's order and leave out frozen parameters.
class Optimizer : public Stateful {
 public:
  /// What to update: whole parameters, or this rank's pieces and `shards`, which exchanges state.
  struct Context {
    Context(std::vector<Parameter> parameters = {}, StateShards* shards = nullptr,
            std::vector<Parameter> buffers = {})
        : parameters(std::move(parameters)), shards(shards), buffers(std::move(buffers)) {}
    std::vector<Parameter> parameters;
    StateShards* shards;             ///< not owned; null for whole parameters
    std::vector<Parameter> buffers;  ///< the model's; `rules` may name them to freeze them
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "optimizer";

  /// Parameters that require gradients must be contiguous, of one dtype (float32 or float64) and
  /// one device; their state has that dtype. Without shards, throws ConfigError if all are frozen,
  /// or if an entry of `no_decay` or `rules` matches no parameter (nor buffer, with `freeze`).
  Optimizer(const OptimizerOptions& options, const Context& context);

  /// The recipe's `lr`: the peak that a schedule's factor multiplies.
  double peak_learning_rate() const { return options_.lr; }
  /// Number of updates made; skipped steps do not count.
  int64_t steps() const { return steps_; }

  /// Makes one update; collective with shards. Throws TORCH_CHECK if a parameter has no gradient.
  void step(double learning_rate);

  /// Lists `optimizer.steps` and each parameter's state, as `optimizer.m.<name>`. Collective with
  /// shards: a matrix cut into pieces is listed whole, by the rank that has its first element.
  void visit_state(StateVisitor& visitor) override;
  void tensors_loaded() override;
  /// The kinds of state ("m", "v"): each has one number per weight.
  std::vector<std::string> state_kinds() const;
  /// Kinds of state that count a weight's updates since sparse training last regrew it.
  virtual std::vector<std::string> step_count_kinds() const { return {}; }
  /// Returns one kind of state ("m", "v") of a parameter: one tensor, or with shards one for each
  /// piece on this rank, in order. Throws TORCH_CHECK on an unknown kind.
  std::vector<torch::Tensor> state_of(const std::string& kind, const std::string& parameter) const;

 protected:
  /// Parameters with equal weight decay and learning rate, which a fused kernel can update at once.
  struct Batch {
    double weight_decay = 0.0;  ///< 0 for parameters that do not decay
    double lr_scale = 1.0;
    std::vector<int64_t> places;  ///< indices of the batch's parameters, below num_parameters()
    std::vector<torch::Tensor> weights, gradients;
    std::vector<std::vector<torch::Tensor>> states;  ///< one list for each add_state call
    std::vector<int64_t> num_matrices;  ///< matrices stacked in dimension 0 of each weight, or 1
  };
  /// Updates the weights; steps() counts this step. With shards, ranks have own batches, or none.
  virtual void update(const std::vector<Batch>& batches, double learning_rate) = 0;

  /// Adds a zero tensor per parameter, saved as `optimizer.<kind>.<name>`. For constructors only.
  void add_state(std::string kind);
  StateShards* shards() const { return shards_; }
  int64_t num_parameters() const { return std::ssize(parameters_); }

 private:
  Batch& batch_for(const Parameter& parameter);
  void visit_pieces(StateVisitor& visitor, size_t kind);

  OptimizerOptions options_;
  StateShards* shards_;
  std::vector<Parameter> parameters_;
  std::vector<Batch> batches_;
  std::vector<std::pair<std::string, std::vector<torch::Tensor>>> states_;
  std::vector<std::vector<torch::Tensor>> wholes_;  ///< cut matrices, from the last visit_state
  int64_t steps_ = 0;
};

/// The option `rules` of the chosen optimizer; empty if none is chosen.
const std::vector<ParameterRule>& rules_of(const Choice<Optimizer>& choice);

}  // namespace shoal
