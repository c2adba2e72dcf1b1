#pragma once

#include <cstdint>

#include "moe/experts/unit_bank.h"
#include "moe/nexus/slot_router.h"
#include "runtime/base/size_limits.h"
#include "runtime/module/products.h"
#include "runtime/options/config.h"

// R rows on this rank  D width  K keys of a unit  k keys chosen per row  u units on this rank
namespace shoal {

/// Memory units of a MoE or Nexus layer: each is a learned table of K keys and values. For a row
/// (query) a unit sums the values of the k keys of highest <query, key>, weighted by the softmax of
/// these scores. Sources: the Nexus layer of "OneSparse: A Unified Framework for Sparse Activation
/// Layers in Vision Models", algorithm A2; initial keys of Lample et al. 2019.
///
/// Parameters, stacked by unit: `keys` [u, K, D], `values` [u, K, D] and, if normalised,
/// `log_scale` [u, 1]. Normalised variant: the query is the row less its mean, divided by its
/// standard deviation; scores are multiplied by exp(log_scale); initially keys are U(±1/√D), values
/// normal with standard deviation 1/√D, log_scale 0. The paper's variant: the query is the row;
/// keys and values are normal with standard deviation 1. Lookups are computed in the parameters'
/// dtype even for bfloat16 rows, since scores decide which values a row gets.
class MemoryBank : public UnitBank, public CountsProducts {
 public:
  struct Options {
    int64_t count = 8;
    int64_t keys = 1024;
    int64_t k = 4;
    NexusVariant variant = NexusVariant::kNormalised;

    static constexpr auto fields() {
      return std::tuple{
          field("count", &Options::count, "memory units over all ranks", in_range(1, kMostUnits)),
          field("keys", &Options::keys, "keys and values per unit", in_range(2, kMostWidth)),
          // With k = 1 the softmax over a single score is constant, and keys would not learn.
          field("k", &Options::k, "number of keys selected per row", in_range(2, kMostWidth)),
          field("variant", &Options::variant, "scaling of queries, initial keys and values")};
    }
    void validate(Problems& problems) const;
  };
  MemoryBank(const Options& options, const Context& context);
  /// Returns the multiply-adds of one row in one unit.
  static double cost(const Options& options, int64_t width);

  torch::Tensor forward(const torch::Tensor& rows_RD, const UnitRows& rows_u) override;
  bool are_memory_units() const override { return true; }
  const UnitPlacement& placement() const override { return placement_; }
  void list_products(double rows, ProductList& list) const override;

 private:
  int64_t k_;
  UnitPlacement placement_;
  torch::Tensor keys_uKD_, values_uKD_, log_scale_u1_;
};

}  // namespace shoal
