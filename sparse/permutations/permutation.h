#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "runtime/module/parameter.h"
#include "runtime/module/state.h"
#include "runtime/module/weight_form.h"
#include "runtime/options/config.h"
#include "runtime/random/random_stream.h"
#include "sparse/permutations/doubly_stochastic.h"
#include "sparse/permutations/soft_family.h"

// u matrices of a stack  n permuted rows or columns  G groups
namespace shoal {

/// What a permutation of a layer reorders.
enum class PermutationAxis {
  kInputs,   ///< y = S P x + b
  kOutputs,  ///< y = P S x + b
};

template <>
struct EnumNames<PermutationAxis> {
  static constexpr std::array names{std::pair{PermutationAxis::kInputs, "column"},
                                    std::pair{PermutationAxis::kOutputs, "row"}};
};

/// The permutations of a sparse weight S, one for each matrix of a stack: products use S P in place
/// of S. While soft, P is a matrix of a family (SoftFamily) whose parameter gradients train, in
/// groups: n / G consecutive inputs are mixed with each other only, which takes less memory. Once
/// hard, P is an index, and the parameter is gone.
///
/// Masks and the sparse kernels see S; a layer's inputs need not be moved, because the product with
/// S P in its weight form is the same.
class Permutation : public WeightForm, public Stateful {
 public:
  /// Which weight is permuted, and how.
  struct Place {
    Parameter parameter;         ///< the weight; stacked where it is
    bool is_transposed = false;  ///< stored as [inputs, outputs]
    PermutationAxis axis = PermutationAxis::kInputs;

    /// n.
    int64_t size() const;
    /// The dimension of n in the parameter, counted from the end: -1 or -2.
    int64_t dim() const;
  };
  /// The identity, hard.
  explicit Permutation(const Place& place);

  const Place& place() const { return place_; }
  const Parameter& weight() const { return place_.parameter; }
  const std::string& name() const { return place_.parameter.name; }

  /// The weight's, of a stack that of its first matrix on this rank.
  std::string name_of_first() const;

  /// Draws hard permutations at random, keyed by (seed, matrix).
  void shuffle(uint64_t seed);
  /// Makes it soft, with the family's first values (SoftFamily::fill) keyed by (seed, matrix). The
  /// groups fit the family (SoftFamily::misfit).
  void soften(int64_t groups, double mix, uint64_t seed,
              std::shared_ptr<const SoftFamily> family = std::make_shared<DoublyStochastic>());
  /// The nearest permutation of each matrix becomes the hard one (SoftFamily::index).
  void harden();
  /// Becomes p, [u, n], hard; permutations of 0 to n - 1 each.
  void set_index(const torch::Tensor& index_un);

  bool is_soft() const { return soft_.defined(); }
  /// The parameter [u, G, shape of the family...], which requires gradients; undefined when hard.
  /// Without a stack u is 1.
  const torch::Tensor& soft() const { return soft_; }
  /// Of soft(), and of what may become soft again when it is loaded.
  const SoftFamily& family() const { return *family_; }
  /// How far each group is from a permutation, in [0, 1]; zeros when hard. [u, G].
  torch::Tensor penalty() const;
  /// Bytes of the parameter of one matrix of the stack; 0 when hard.
  int64_t soft_bytes() const;
  /// p [u, n]: (P x)_i = x_{p(i)}. What P is nearest to while it is soft.
  torch::Tensor index() const;
  /// ‖P - I‖_F / sqrt(2 n) of each matrix: 0 for the identity, at most 1.
  torch::Tensor distance() const;

  torch::Tensor apply(const torch::Tensor& parameter) const override;
  std::vector<torch::Tensor> leaves() const override;

  /// Saved beside the weight: `sparsity.soft.` + name while soft, `sparsity.index.` + name after.
  static constexpr const char* kSoftPrefix = "sparsity.soft.";
  static constexpr const char* kIndexPrefix = "sparsity.index.";
  void visit_state(StateVisitor& visitor) override;
  /// Soft or hard, as what is to be loaded. Throws Error (exit 12) if that is soft and this has no
  /// family.
  void fit_to(const SavedNames& saved) override;
  void tensors_loaded() override;

 private:
  Stream stream(int64_t matrix, uint64_t seed) const;
  torch::Tensor allocate_soft() const;
  int64_t side() const { return place_.size() / groups_; }
  torch::Tensor permuted(const torch::Tensor& stack_uab) const;

  Place place_;
  int64_t num_matrices_;
  int64_t groups_ = 1;
  std::shared_ptr<const SoftFamily> family_;  // null if it was never soft
  torch::Tensor soft_;                        // undefined when hard
  torch::Tensor index_un_, inverse_un_;       // undefined while soft
};

}  // namespace shoal
