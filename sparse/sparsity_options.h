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
    return std::tuple{required("match", &LayerDensity::match,
                               "layers, as sparsity.layers names them", not_empty()),
                      required("density", &LayerDensity::density,
                               "fraction of their weights that are nonzero; 1: dense",
                               in_range(above(0.0), 1.0))};
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
              "fraction of nonzero weights, in all layers that `densities` does not name",
              in_range(above(0.0), 1.0)),
        field("distribution", &SparsityOptions::distribution,
              "distribution of the density over layers: uniform, or small layers denser (erk)"),
        field("layers", &SparsityOptions::layers,
              "layers, by a part of their names, with * for any characters: mlp, attention.proj, "
              "blocks.0.*; none given: the backbone's default"),
        field("densities", &SparsityOptions::densities, "layers with their own density"),
        field("pattern", &SparsityOptions::pattern, "which weights are masked together"),
        field("rule", &SparsityOptions::rule, "which weights are dropped and grown, and when"),
        field("permutation", &SparsityOptions::permutation,
              "permutation of the layers' inputs or outputs, random or learned"),
        field("rescale", &SparsityOptions::rescale,
              "multiply the initial weights by sqrt(inputs / unmasked inputs), so that outputs "
              "keep their variance"),
        field(
            "execution", &SparsityOptions::execution,
            "sparse: sparse kernels, in float32 or float64; masked_dense: dense products with "
            "zeros; auto: the faster of the two on CPUs, dense on GPUs. The pattern n_m and stacks "
            "of experts are always dense, and an error with sparse; layers are dense while their "
            "permutation is soft, and in updates that need gradients of masked weights",
            on_resume(OnResume::kWarned))};  // sums in another order
  }
};

}  // namespace shoal
