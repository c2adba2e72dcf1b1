#include "runtime/random/random.h"

#include <torch/library.h>

#include "runtime/device/operator.h"

// N rows  P values per row

// Row n gets the values of id_N[n], P of them; a row of more than 2^32 blocks runs on into the next
// id. `stream` is {seed, purpose, layer, step}; out_NP is contiguous, float32 or float64.
TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def("random_rows_(Tensor(a!) out_NP, Tensor id_N, int[] stream, int distribution) -> ()");
}

namespace shoal {
namespace {

using philox::Distribution;

at::ScalarType draw_type(at::ScalarType dtype) {
  TORCH_CHECK(at::isFloatingType(dtype), "random numbers want a floating dtype, got ", dtype);
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

void draw_on_device(const torch::Tensor& out_NP, const torch::Tensor& id_N, const Stream& stream,
                    Distribution distribution) {
  static const Operator<void(const at::Tensor&, const at::Tensor&, at::IntArrayRef, int64_t)> op(
      "shoal::random_rows_");
  const int64_t words[] = {static_cast<int64_t>(stream.seed), static_cast<int64_t>(stream.purpose),
                           static_cast<int64_t>(stream.layer), static_cast<int64_t>(stream.step)};
  op(out_NP, id_N, words, static_cast<int64_t>(distribution));
}

/// The tensor is one row.
void fill_from(const torch::Tensor& out, const Stream& stream, Distribution distribution) {
  torch::NoGradGuard no_grad;
  const at::ScalarType type = draw_type(out.scalar_type());
  const bool fits = out.is_contiguous() && out.scalar_type() == type;
  const torch::Tensor drawn = fits ? out : torch::empty(out.sizes(), out.options().dtype(type));
  draw_on_device(drawn.view({1, drawn.numel()}), torch::zeros({1}, out.options().dtype(at::kLong)),
                 stream, distribution);
  if (!fits) out.copy_(drawn);
}

torch::Tensor rows(const Stream& stream, const torch::Tensor& id_N, int64_t per_id,
                   at::ScalarType dtype, Distribution distribution) {
  TORCH_CHECK(id_N.dim() == 1 && id_N.scalar_type() == at::kLong,
              "ids of random rows: expected int64 [N], got ", id_N.scalar_type(), " ",
              id_N.sizes());
  TORCH_CHECK(per_id >= 0 && per_id <= INT64_C(1) << 32, "random rows of ", per_id, " values");
  const torch::Tensor out_NP =
      torch::empty({id_N.size(0), per_id}, id_N.options().dtype(draw_type(dtype)));
  draw_on_device(out_NP, id_N.contiguous(), stream, distribution);
  return out_NP.to(dtype);
}

}  // namespace

void fill_uniform(const torch::Tensor& out, const Stream& stream) {
  fill_from(out, stream, Distribution::kUniform);
}

void fill_normal(const torch::Tensor& out, const Stream& stream) {
  fill_from(out, stream, Distribution::kNormal);
}

torch::Tensor uniform_rows(const Stream& stream, const torch::Tensor& id_N, int64_t per_id,
                           at::ScalarType dtype) {
  return rows(stream, id_N, per_id, dtype, Distribution::kUniform);
}

torch::Tensor normal_rows(const Stream& stream, const torch::Tensor& id_N, int64_t per_id,
                          at::ScalarType dtype) {
  return rows(stream, id_N, per_id, dtype, Distribution::kNormal);
}

torch::Tensor gumbel_rows(const Stream& stream, const torch::Tensor& id_N, int64_t per_id,
                          at::ScalarType dtype) {
  return rows(stream, id_N, per_id, dtype, Distribution::kGumbel);
}

}  // namespace shoal
