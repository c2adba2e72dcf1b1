#include "sparse/training/replica_check.h"

#include "runtime/base/error.h"
#include "runtime/random/random_stream.h"

namespace shoal {

void require_equal_replicas(const torch::Tensor& tensor, Communicator& replicas,
                            const std::string& message) {
  if (replicas.size() == 1) return;
  const torch::Tensor host = tensor.to(torch::kCPU).contiguous();
  const auto hash = static_cast<int64_t>(
      hash_name({static_cast<const char*>(host.const_data_ptr()), host.nbytes()}) >> 1);
  const torch::Tensor most = torch::tensor({hash, -hash}, torch::kInt64).to(tensor.device());
  all_reduce(replicas, most, ReduceOp::kMax);
  if (most[0].item<int64_t>() != -most[1].item<int64_t>()) throw CommError(message);
}

}  // namespace shoal
