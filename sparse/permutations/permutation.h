#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/module/parameter.h"
#include "runtime/module/state.h"
#include "runtime/module/weight_form.h"
#include "runtime/options/config.h"
#include "runtime/random/random_stream.h"
#include "sparse/permutations/soft_family.h"

// u matrices of a stack  n permuted rows or columns  G groups
namespace shoal {

/// Side of a layer's weight S that a permutation P reorders.
enum class PermutationAxis {
  kInputs,   ///< y = S P x + b
  kOutputs,  ///< y = P S x + b
};

template <>
inline constexpr std::array kEnumWords<PermutationAxis>{"column", "row"};

/// Permutation P of a sparse weight S, one for each matrix of a stack of experts: products use S P,
/// or P S, in place of S, so that a structured mask need not fit the order of the neurons. While
/// soft, P is a relaxed matrix. Its trained parameter depends on the SoftFamily: P itself (doubly
/// stochastic), or logits of switches whose product is P. To save memory, P mixes only the members
/// of a group: n / G consecutive inputs or outputs. Once hard, P is an index without a parameter.
///
/// Masks apply to S. Sparse kernels read S, and apply a hard P as an index of inputs or outputs.
/// For dense products, this WeightForm (a function of the weight) computes S P or P S. Source:
/// PA-DST (Efficient Dynamic Structured Sparse Training with Learned Shuffles).
class Permutation : public WeightForm, public Stateful {
 public:
  /// The permuted weight and the axis of its permutation.
  struct Place {
    Parameter parameter;         ///< the weight, may be stacked
    bool is_transposed = false;  ///< true if stored as [inputs, outputs]
    PermutationAxis axis = PermutationAxis::kInputs;

    /// n, the number of permuted rows or columns.
    int64_t size() const { return parameter.tensor.size(dim()); }
    /// Dimension of n in the parameter, counted from the end: -1 or -2.
    int64_t dim() const;
  };
  /// Starts as a hard identity.
  explicit Permutation(const Place& place);

  const Place& place() const { return place_; }
  const Parameter& weight() const { return place_.parameter; }
  const std::string& name() const { return place_.parameter.name; }

  /// Replaces all matrices by random hard permutations, keyed by (seed, matrix).
  void shuffle(uint64_t seed);
  /// Makes the permutation soft. The first P has a share `mix` of the identity; the rest is random,
  /// keyed by (seed, matrix). `groups` must suit the family (SoftFamily::misfit).
  void soften(int64_t groups, double mix, uint64_t seed, std::shared_ptr<const SoftFamily> family);
  /// Makes the permutation hard: the nearest permutation of each matrix (SoftFamily::index).
  void harden() { set_index(index()); }
  /// Sets a hard permutation p [u, n]; each row is a permutation of 0 to n - 1.
  void set_index(const torch::Tensor& index_un);

  bool is_soft() const { return soft_.defined(); }
  /// The parameter [u, G, shape of the family...], such as [u, G, n / G, n / G] if it is P.
  /// Requires gradients; undefined when hard. u is 1 for a single matrix.
  const torch::Tensor& soft() const { return soft_; }
  /// Family of soft(), or of the parameter that loading a checkpoint may create.
  const SoftFamily& family() const { return *family_; }
  /// Distance of each P from a permutation, [u, G] in [0, 1], to be minimised; zeros when hard.
  torch::Tensor penalty() const;
  /// Bytes of the parameter per matrix; 0 when hard.
  int64_t soft_bytes() const;
  /// p [u, n] with (P x)_i = x_{p(i)}; while soft, the nearest permutation.
  torch::Tensor index() const;
  /// ‖P - I‖_F / sqrt(2 n) for each matrix: 0 for the identity, at most 1.
  torch::Tensor distance() const;

  torch::Tensor apply(const torch::Tensor& parameter) const override;  ///< S P or P S, as stored
  std::vector<torch::Tensor> leaves() const override;  ///< soft() alone; empty when hard

  /// State keys: `sparsity.soft.` + name while soft, `sparsity.index.` + name when hard.
  static constexpr const char* kSoftPrefix = "sparsity.soft.";
  static constexpr const char* kIndexPrefix = "sparsity.index.";
  void visit_state(StateVisitor& visitor) override;
  /// Becomes soft or hard like the checkpoint that is loaded next. Throws Error (exit 12) if the
  /// checkpoint is soft and this permutation has no family.
  void fit_to(const SavedNames& saved) override;
  void tensors_loaded() override;  ///< throws CheckpointError if an index is not a permutation

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
