#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "runtime/base/duration.h"
#include "runtime/options/config.h"
#include "runtime/options/registry.h"
#include "sparse/permutations/permutation.h"

namespace shoal {

/// Options for training soft permutations, relaxed matrices. A layer's permutation becomes hard,
/// fixed, once its penalty is below `threshold`, or else at `until`.
struct LearningOptions {
  PermutationAxis axis = PermutationAxis::kInputs;
  int64_t groups = 1;
  std::optional<double> mix;
  double lr = 3e-3;
  double penalty = 1.0;
  Duration ramp = Duration::percent(10);
  double threshold = 0.02;
  Duration check_every = Duration::steps(100);
  Duration until = Duration::percent(30);

  static constexpr auto fields() {
    return std::tuple{
        field("axis", &LearningOptions::axis,
              "column: the layer's inputs are reordered, S P; row: its outputs, P S"),
        field(
            "groups", &LearningOptions::groups,
            "equal parts within which elements are reordered; memory is proportional to 1 / groups",
            in_range(1, 1 << 16)),
        field("mix", &LearningOptions::mix,
              "fraction of the identity in the initial matrix, the rest is random; auto: 0.5 for "
              "benes and kaleidoscope, else 1 / size of a group",
              unset_word("auto"), in_range(above(0.0), below(1.0))),
        field("lr", &LearningOptions::lr, "learning rate, constant; Adam without weight decay",
              in_range(above(0.0), 10.0)),
        field("penalty", &LearningOptions::penalty,
              "weight of the penalty on each layer's distance from a permutation, in [0, 1]",
              in_range(0.0, 1e6)),
        field("ramp", &LearningOptions::ramp,
              "duration over which the weight of the penalty rises from 0", kPlaceUnits),
        field("threshold", &LearningOptions::threshold,
              "a layer is hard once its penalty, in [0, 1], is below this; experts only at `until`",
              in_range(0.0, 1.0)),
        field("check_every", &LearningOptions::check_every, "interval between threshold checks",
              above(0), kCountedUnits),
        field("until", &LearningOptions::until, "all layers are hard from here on", above(0),
              kPlaceUnits)};
  }
};

/// Durations of LearningOptions in steps. Throws ConfigError for units that `scale` cannot convert.
struct LearningSteps {
  LearningSteps(const LearningOptions& options, const StepScale& scale)
      : ramp(steps_of("ramp", options.ramp, scale)),
        check_every(steps_of("check_every", options.check_every, scale)),
        until(steps_of("until", options.until, scale)) {}

  int64_t ramp, check_every, until;
};

/// How sparse layers are permuted, such as `random` or `learned`. Registered under `permutation`.
class PermutationMethod {
 public:
  struct Context {};
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "permutation";
  virtual ~PermutationMethod() = default;

  /// The permuted axis; nullopt: no permutation.
  virtual std::optional<PermutationAxis> axis() const = 0;
  /// Throws ConfigError, beginning with `layer`, if `size` inputs or outputs cannot be permuted.
  virtual void check(const std::string& /*layer*/, int64_t /*size*/) const {}
  /// Sets the first state of a layer's permutation, with random numbers keyed by (seed, matrix).
  virtual void begin(Permutation& permutation, uint64_t seed) const = 0;
  /// True if a soft permutation is saved as its matrix P, false if as parameters that make up P.
  virtual bool saves_soft_matrix() const { return false; }
  /// Options of the training of permutations; null: they are not trained.
  virtual const LearningOptions* learning() const { return nullptr; }
};

}  // namespace shoal
