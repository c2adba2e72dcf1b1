#pragma once

#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/options/config.h"
#include "sparse/grow_rules/grow_rule.h"
#include "sparse/patterns/pattern.h"
#include "sparse/permutations/permutation_method.h"

namespace shoal {

/// How the overall density is distributed over the sparse layers.
enum class DensityDistribution {
  kUniform,  ///< the same for all
  kErk,      ///< Erdős–Rényi-Kernel, small matrices denser: erk_densities
};

template <>
inline constexpr std::array kEnumWords<DensityDistribution>{"uniform", "erk"};

/// Implementation of the products of sparse layers.
enum class SparseExecution {
  kAuto,         ///< on CPUs sparse kernels where they are faster; on GPUs dense
  kMaskedDense,  ///< a dense matrix with zeros
  kSparse,       ///< sparse kernels
};

template <>
inline constexpr std::array kEnumWords<SparseExecution>{"auto", "masked_dense", "sparse"};

/// A separate density for the layers that a name matches.
struct LayerDensity {
  std::string match;
  double density = 1.0;

  static constexpr auto fields() {
    return std::tuple{
        required("match", &LayerDensity::match, "layers, as sparsity.layers names them",
                 not_empty()),
        required("density", &LayerDensity::density,
                 "share of their weights that are nonzero; 1: dense", in_range(above(0.0), 1.0))};
  }
};

/// The recipe's `sparsity`: which layers are trained sparse, and how.
struct SparsityOptions {
  double density = 0.1;
  DensityDistribution distribution = DensityDistribution::kUniform;
  std::vector<std::string> layers;
  std::vector<LayerDensity> densities;
  Choice<Pattern> pattern{"unstructured"};
  Choice<GrowRule> rule{"rigl"};
  Choice<PermutationMethod> permutation{"none"};
  bool rescale = true;
  SparseExecution execution = SparseExecution::kAuto;

  static constexpr auto fields() {
    return std::tuple{
        field("density", &SparsityOptions::density,
              "share of the weights that are nonzero, in all layers that densities does not name",
              in_range(above(0.0), 1.0)),
        field("distribution", &SparsityOptions::distribution,
              "how it is shared out among the layers: all alike, or small ones denser (erk)"),
        field("layers", &SparsityOptions::layers,
              "layers by a part of their names, * for any characters: mlp, attention.proj, "
              "blocks.0.*; none given: the backbone's default"),
        field("densities", &SparsityOptions::densities, "layers that have a density of their own"),
        field("pattern", &SparsityOptions::pattern, "which weights are on or off together"),
        field("rule", &SparsityOptions::rule, "which of them are dropped and grown, and when"),
        field("permutation", &SparsityOptions::permutation,
              "another order of the layers' inputs or outputs, drawn or learned"),
        field("rescale", &SparsityOptions::rescale,
              "multiply the first weights by sqrt(inputs / inputs that are on), so that outputs "
              "keep their variance"),
        field(
            "execution", &SparsityOptions::execution,
            "sparse: products by sparse kernels, in float32 or float64; masked_dense: with a dense "
            "matrix that has zeros; auto: on CPUs by whichever is faster, on GPUs dense. The "
            "pattern n_m and stacks of experts are always dense, and an error under sparse; layers "
            "with soft permutations, and updates that read gradients of weights that are off, are "
            "dense meanwhile",
            on_resume(OnResume::kWarned))};  // sums in another order
  }
};

}  // namespace shoal
