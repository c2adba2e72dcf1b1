#include "launch/evaluate/sample_pictures.h"

#include <ATen/ops/zeros.h>

#include <utility>

// b samples on this rank  B samples on all ranks
namespace shoal {
namespace {

/// Gathers the first `count` rows from all ranks, by their places.
torch::Tensor gather_rows(const torch::Tensor& value_b, const torch::Tensor& place_b,
                          torch::Dtype dtype, int64_t count, Communicator& world) {
  std::vector<int64_t> sizes = value_b.sizes().vec();
  sizes[0] = count;
  torch::Tensor value_B = at::zeros(sizes, dtype);
  const torch::Tensor host_b = value_b.to(torch::kCPU, dtype);
  for (int64_t i = 0; i < place_b.size(0); ++i) {
    const auto place = place_b[i].item<int64_t>();
    if (place < count) value_B[place].copy_(host_b[i]);
  }
  all_reduce(world, value_B);
  return value_B;
}

}  // namespace

std::vector<PictureColumn> gather_pictures(Task& task, const Batch& batch,
                                           const PicturedSamples& samples, Communicator& world) {
  std::vector<PictureColumn> columns = task.pictures(batch);
  const torch::Tensor place_b = batch.context.sample_b.to(torch::kCPU) - samples.first;
  for (PictureColumn& column : columns) {
    column.image_bCHW =
        gather_rows(column.image_bCHW, place_b, torch::kFloat32, samples.count, world);
    if (!column.number_b.defined()) continue;
    column.number_b = gather_rows(column.number_b, place_b, torch::kFloat64, samples.count, world);
  }
  return columns;
}

}  // namespace shoal
