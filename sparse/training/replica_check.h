#pragma once

#include <torch/types.h>

#include <string>

#include "parallel/comm/communicator.h"

namespace shoal {

/// Throws CommError with this message unless the tensor's bytes are equal on all ranks. Collective.
void require_equal_replicas(const torch::Tensor& tensor, Communicator& replicas,
                            const std::string& message);

}  // namespace shoal
