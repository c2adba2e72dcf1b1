#include "runtime/random/random.h"

#include <torch/library.h>

#include "runtime/device/operator.h"

// N rows  P values per row

// Both operators take a StreamKey as `key` (64 bits) and `tag`, a Distribution as its number, and
// contiguous float32 or float64 tensors on one device.
TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def("random_fill_(Tensor(a!) out, int key, int tag, int distribution) -> ()");
  m.def("random_rows_(Tensor(a!) out_NP, Tensor id_N, int key, int tag, int distribution) -> ()");
}

namespace shoal {
namespace {

using philox::Distribution;

int64_t pack(const philox::StreamKey& key) {
  return static_cast<int64_t>(uint64_t{key.key[1]} << 32 | key.key[0]);
}

at::ScalarType draw_type(at::ScalarType dtype) {
  TORCH_CHECK(at::isFloatingType(dtype), "random numbers want a floating dtype, got ", dtype);
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

void fill_from(const torch::Tensor& out, const Stream& stream, Distribution distribution) {
  static const Operator<void(const at::Tensor&, int64_t, int64_t, int64_t)> op(
      "shoal::random_fill_");
  torch::NoGradGuard no_grad;
  const philox::StreamKey key = stream.key();
  const bool fits = out.is_contiguous() && out.scalar_type() == draw_type(out.scalar_type());
  const torch::Tensor drawn =
      fits ? out : torch::empty(out.sizes(), out.options().dtype(draw_type(out.scalar_type())));
  op(drawn, pack(key), key.tag, static_cast<int64_t>(distribution));
  if (!fits) out.copy_(drawn);
}

torch::Tensor rows(const Stream& stream, const torch::Tensor& id_N, int64_t per_id,
                   at::ScalarType dtype, Distribution distribution) {
  static const Operator<void(const at::Tensor&, const at::Tensor&, int64_t, int64_t, int64_t)> op(
      "shoal::random_rows_");
  TORCH_CHECK(id_N.dim() == 1 && id_N.scalar_type() == at::kLong,
              "ids of random rows: expected int64 [N], got ", id_N.scalar_type(), " ",
              id_N.sizes());
  TORCH_CHECK(per_id >= 0 && per_id <= INT64_C(1) << 32, "random rows of ", per_id, " values");
  const philox::StreamKey key = stream.key();
  const torch::Tensor out_NP =
      torch::empty({id_N.size(0), per_id}, id_N.options().dtype(draw_type(dtype)));
  op(out_NP, id_N.contiguous(), pack(key), key.tag, static_cast<int64_t>(distribution));
  return out_NP.to(dtype);
}

}  // namespace

void fill_uniform(const torch::Tensor& out, const Stream& stream) {
  fill_from(out, stream, Distribution::kUniform);
}

void fill_normal(const torch::Tensor& out, const Stream& stream) {
  fill_from(out, stream, Distribution::kNormal);
}

void fill_gumbel(const torch::Tensor& out, const Stream& stream) {
  fill_from(out, stream, Distribution::kGumbel);
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
