#pragma once

#include <torch/types.h>

#include <memory>

#include "parallel/comm/communicator.h"

/// Differentiable collectives: all-to-all and all-reduce as nodes of the autograd graph, for layers
/// whose activations cross ranks. Gradients are those of the sum of all ranks' losses.
///
/// Every rank must call, forward and backward, even with zero rows. The backward pass must make the
/// same collectives on all ranks. Outputs therefore require gradients if the group has several
/// ranks and gradients are enabled, even if this rank's input does not, and every rank's loss must
/// depend on every output. A group of one rank returns its input and communicates nothing.
///
/// Tensors need not be contiguous. Integer tensors pass without gradients. `comm` must outlive the
/// graph. No second derivatives (TORCH_CHECK).
namespace shoal {

struct ExchangeState;

/// An all-to-all in flight; pass it to finish_all_to_all.
struct StartedExchange {
  torch::Tensor link;  ///< joins start and finish in the graph; undefined without gradients
  torch::Tensor rows;  ///< in a group of one rank: the result; else undefined
  std::shared_ptr<ExchangeState> state;  ///< counts and buffers that both halves use
};

/// Starts an all-to-all of rows. rows [sum(send_rows), ...] holds send_rows[r] rows for each rank
/// r, in rank order; recv_rows[r] rows arrive from rank r.
/// Computation between start and finish overlaps with the transfer, in the forward pass and in the
/// backward pass, where the gradient of finish starts the reverse exchange and that of start waits
/// for it. Several exchanges may be finished in any order that is equal on all ranks.
/// Throws TORCH_CHECK on a count mismatch, CommError from the backend.
/// Source: Shazeer et al. 2017 (sparsely-gated MoE), section 3.1.
StartedExchange start_all_to_all(const torch::Tensor& rows, const RowCounts& send_rows,
                                 const RowCounts& recv_rows, Communicator& comm);
/// Returns the received rows [sum(recv_rows), ...], by source rank, then source order. Call once.
torch::Tensor finish_all_to_all(StartedExchange started);

/// Starts and finishes an all-to-all.
torch::Tensor all_to_all(const torch::Tensor& rows, const RowCounts& send_rows,
                         const RowCounts& recv_rows, Communicator& comm);

/// Returns the sum of `tensor` over ranks; gradients are summed over ranks, too.
torch::Tensor all_reduce_sum(const torch::Tensor& tensor, Communicator& comm);

}  // namespace shoal
