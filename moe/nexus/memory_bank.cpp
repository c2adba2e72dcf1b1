#include "moe/nexus/memory_bank.h"

#include <ATen/ops/layer_norm.h>
#include <fmt/format.h>

#include <cmath>

#include "moe/nexus/kernels/memory_lookup.h"

namespace shoal {
namespace {

constexpr double kNormEps = 1e-6;

const Registration<UnitBank, MemoryBank> registered_memory_bank{"memory",
                                                                "key-value tables of equal size"};

}  // namespace

void MemoryBank::Options::validate(Problems& problems) const {
  if (k > keys) problems.add("k", fmt::format("{} keys per row, but a unit has only {}", k, keys));
}

double MemoryBank::cost(const Options& options, int64_t width) {
  return static_cast<double>(options.keys + options.k) * static_cast<double>(width);
}

MemoryBank::MemoryBank(const Options& options, const Context& context)
    : k_(options.k),
      placement_(context.place(
          std::vector<double>(static_cast<size_t>(options.count), cost(options, context.width)))) {
  const bool is_paper = options.variant == NexusVariant::kPaper;
  const double by_width = 1 / std::sqrt(static_cast<double>(context.width));
  const auto add = [&](const char* name, at::IntArrayRef sizes, const Init& init) {
    return add_stacked_parameter(name, sizes, context.tensor_options, init,
                                 placement_.units_of_rank(context.rank));
  };
  keys_uKD_ = add("keys", {options.keys, context.width},
                  is_paper ? Init::normal(1) : Init::uniform(by_width));
  values_uKD_ = add("values", {options.keys, context.width}, Init::normal(is_paper ? 1 : by_width));
  if (!is_paper) log_scale_u1_ = add("log_scale", {1}, Init::zeros());
}

torch::Tensor MemoryBank::forward(const torch::Tensor& rows_RD, const UnitRows& rows_u) {
  return run_on_host_counts(rows_RD, rows_u, [&](const torch::Tensor& rows, const auto& counts) {
    const torch::Tensor wide_RD = rows.to(keys_uKD_.scalar_type());
    const bool is_paper = !log_scale_u1_.defined();
    const torch::Tensor query_RD =
        is_paper ? wide_RD : at::layer_norm(wide_RD, {wide_RD.size(1)}, {}, {}, kNormEps);
    const torch::Tensor scale_u = is_paper ? torch::Tensor() : log_scale_u1_.flatten().exp();
    return memory_lookup(query_RD, counts, {keys_uKD_, values_uKD_, scale_u}, k_)
        .to(rows.scalar_type());
  });
}

void MemoryBank::list_products(double rows, ProductList& list) const {
  list.apply(keys_uKD_, rows);
  list.apply(values_uKD_, rows * static_cast<double>(k_) / static_cast<double>(keys_uKD_.size(1)));
  list.apply(log_scale_u1_, rows);
}

}  // namespace shoal
