#include "runtime/device/tensor_table_cuda.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace shoal {
namespace {

constexpr int64_t kChunkElements = 32768;

static_assert(sizeof(TensorChunk) == 4 * sizeof(int64_t) && sizeof(void*) == sizeof(int64_t) &&
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

/// The chunks of a list, and where each matrix's begin.
struct Cut {
  std::vector<TensorChunk> chunks;
  std::vector<int64_t> first_chunk{0};

  Cut(at::TensorList tensors, at::IntArrayRef num_matrices) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const int64_t per_matrix = num_matrices[i] > 0 ? tensors[i].numel() / num_matrices[i] : 0;
      for (int64_t matrix = 0; matrix < num_matrices[i]; ++matrix) {
        const auto index = static_cast<int64_t>(first_chunk.size()) - 1;
        for (int64_t done = 0; done < per_matrix; done += kChunkElements) {
          chunks.push_back({static_cast<int64_t>(i), index, matrix * per_matrix + done,
                            std::min(kChunkElements, per_matrix - done)});
        }
        first_chunk.push_back(static_cast<int64_t>(chunks.size()));
      }
    }
  }
};

}  // namespace

// One block of 8-byte words: pointers, types, first chunks, chunks.
TensorTable make_tensor_table(at::ArrayRef<at::TensorList> lists, at::IntArrayRef num_matrices) {
  const at::TensorList tensors = lists[0];
  const Cut cut(tensors, num_matrices);
  const auto num_tensors = static_cast<int64_t>(tensors.size());
  const auto num_firsts = static_cast<int64_t>(cut.first_chunk.size());
  const auto num_chunks = static_cast<int64_t>(cut.chunks.size());
  const int64_t num_pointers = static_cast<int64_t>(lists.size()) * num_tensors;
  const int64_t types_at = num_pointers, firsts_at = types_at + num_tensors;
  const int64_t chunks_at = firsts_at + num_firsts;
  const torch::Tensor host = torch::empty({chunks_at + 4 * num_chunks},
                                          torch::TensorOptions(torch::kInt64).pinned_memory(true));
  int64_t* word = host.data_ptr<int64_t>();
  for (const at::TensorList& list : lists) {
    for (const torch::Tensor& tensor : list) {
      *word++ = static_cast<int64_t>(reinterpret_cast<intptr_t>(tensor.const_data_ptr()));
    }
  }
  for (const torch::Tensor& tensor : tensors) *word++ = static_cast<int64_t>(type_of(tensor));
  word = std::copy(cut.first_chunk.begin(), cut.first_chunk.end(), word);
  if (num_chunks > 0) {
    std::memcpy(word, cut.chunks.data(), cut.chunks.size() * sizeof(TensorChunk));
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
