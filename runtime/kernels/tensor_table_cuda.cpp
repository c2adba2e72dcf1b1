#include "runtime/kernels/tensor_table_cuda.h"

#include <algorithm>
#include <cstring>

#include "runtime/kernels/matrix_chunks.h"

namespace shoal {
namespace {

constexpr int64_t kChunkElements = 32768;

static_assert(sizeof(TensorChunk) == 5 * sizeof(int64_t) && sizeof(void*) == sizeof(int64_t) &&
              sizeof(ValueType) == sizeof(int64_t));

ValueType type_of(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return ValueType::kFloat;
    case at::kDouble:
      return ValueType::kDouble;
    case at::kBFloat16:
      return ValueType::kBfloat16;
    default:
      TORCH_CHECK(false, "expected float32, float64 or bfloat16, got ", tensor.scalar_type());
  }
}

}  // namespace

// One block of 8-byte words: pointers, types, first chunks, chunks.
TensorTable make_tensor_table(at::ArrayRef<at::TensorList> lists, at::IntArrayRef num_matrices) {
  const at::TensorList tensors = lists[0];
  const MatrixChunks cut(tensors, num_matrices, kChunkElements);
  const auto num_tensors = std::ssize(tensors);
  const auto num_firsts = std::ssize(cut.first_chunk());
  const auto num_chunks = std::ssize(cut);
  const int64_t num_pointers = std::ssize(lists) * num_tensors;
  const int64_t types_at = num_pointers, firsts_at = types_at + num_tensors;
  const int64_t chunks_at = firsts_at + num_firsts;
  const torch::Tensor host = torch::empty({chunks_at + 5 * num_chunks},
                                          torch::TensorOptions(torch::kInt64).pinned_memory(true));
  int64_t* word = host.data_ptr<int64_t>();
  for (const at::TensorList& list : lists) {
    for (const torch::Tensor& tensor : list) {
      *word++ = static_cast<int64_t>(reinterpret_cast<intptr_t>(tensor.const_data_ptr()));
    }
  }
  for (const torch::Tensor& tensor : tensors) *word++ = static_cast<int64_t>(type_of(tensor));
  word = std::copy(cut.first_chunk().begin(), cut.first_chunk().end(), word);
  if (num_chunks > 0) {
    std::memcpy(word, cut.chunks().data(), cut.size() * sizeof(TensorChunk));
  }
  TensorTable table{host.to(tensors[0].device(), /*non_blocking=*/true), {}};
  int64_t* on_device = table.memory.data_ptr<int64_t>();
  table.chunks = {reinterpret_cast<void* const*>(on_device),
                  reinterpret_cast<const ValueType*>(on_device + types_at),
                  on_device + firsts_at,
                  reinterpret_cast<const TensorChunk*>(on_device + chunks_at),
                  num_tensors,
                  num_firsts - 1,
                  num_chunks};
  return table;
}

}  // namespace shoal
