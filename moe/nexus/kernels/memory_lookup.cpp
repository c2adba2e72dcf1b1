#include "moe/nexus/kernels/memory_lookup.h"

#include <torch/library.h>

#include <numeric>

#include "runtime/device/autograd_function.h"
#include "runtime/device/operator.h"

// R rows  D width  K keys of a unit  k keys chosen per row  u units
namespace shoal {
namespace {

using torch::Tensor;

using LookupForward = std::tuple<Tensor, Tensor, Tensor, Tensor>(const Tensor&, c10::IntArrayRef,
                                                                 const Tensor&, const Tensor&,
                                                                 const MaybeTensor&, int64_t);
using LookupBackward = std::vector<Tensor>(const Tensor&, at::TensorList, c10::IntArrayRef, bool);

struct MemoryLookup : torch::autograd::Function<MemoryLookup> {
  static Tensor forward(AutogradContext* ctx, const Tensor& query, const Tensor& keys,
                        const Tensor& values, const MaybeTensor& scale,
                        const std::vector<int64_t>& rows_u, int64_t k) {
    static const Operator<LookupForward> op("shoal::memory_lookup_forward");
    auto [y, chosen, score, weight] = op(query, rows_u, keys, values, scale, k);
    ctx->save_for_backward({query, keys, values, chosen, score, weight, scale.value_or(Tensor())});
    ctx->saved_data["rows_u"] = rows_u;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    static const Operator<LookupBackward> op("shoal::memory_lookup_backward");
    const std::vector<int64_t> rows_u = ctx->saved_data["rows_u"].toIntVector();
    variable_list result =
        op(grads[0].contiguous(), ctx->get_saved_variables(), rows_u, ctx->needs_input_grad(0));
    result.resize(6);  // query, keys, values, scale; none for the plain arguments
    return result;
  }
};

void check_lookup(const Tensor& query, const std::vector<int64_t>& rows_u,
                  const MemoryTables& tables, int64_t k) {
  const auto num_units = static_cast<int64_t>(rows_u.size());
  const Tensor& keys = tables.keys;
  TORCH_CHECK(query.dim() == 2, "memory_lookup: queries must be [R, D], got ", query.sizes());
  TORCH_CHECK(keys.dim() == 3 && keys.size(0) == num_units && keys.size(2) == query.size(1) &&
                  keys.sizes() == tables.values.sizes(),
              "memory_lookup: keys ", keys.sizes(), " and values ", tables.values.sizes(), " for ",
              num_units, " units and queries of width ", query.size(1));
  TORCH_CHECK(k >= 1 && k <= keys.size(1), "memory_lookup: ", k, " of ", keys.size(1), " keys");
  TORCH_CHECK(!tables.scale_u.defined() || tables.scale_u.sizes() == at::IntArrayRef{num_units},
              "memory_lookup: scales ", tables.scale_u.sizes(), " for ", num_units, " units");
  for (const Tensor& tensor : {keys, tables.values, tables.scale_u}) {
    TORCH_CHECK(!tensor.defined() ||
                    (tensor.scalar_type() == query.scalar_type() && tensor.is_contiguous()),
                "memory_lookup: tables must be contiguous and ", query.scalar_type());
  }
  const int64_t num_rows = std::accumulate(rows_u.begin(), rows_u.end(), int64_t{0});
  TORCH_CHECK(num_rows == query.size(0), "memory_lookup: the units have ", num_rows,
              " rows, there are ", query.size(0));
}

}  // namespace

Tensor memory_lookup(const Tensor& query_RD, const std::vector<int64_t>& rows_u,
                     const MemoryTables& tables, int64_t k) {
  check_lookup(query_RD, rows_u, tables, k);
  return MemoryLookup::apply(query_RD.contiguous(), tables.keys, tables.values,
                             optional_of(tables.scale_u), rows_u, k);
}

TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def(
      "memory_lookup_forward(Tensor query, int[] rows_per_unit, Tensor keys, Tensor values, "
      "Tensor? scale, int k) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "memory_lookup_backward(Tensor grad, Tensor[] saved, int[] rows_per_unit, "
      "bool needs_query_grad) -> Tensor[]");
}

}  // namespace shoal
