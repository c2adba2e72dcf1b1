#pragma once

#include <torch/types.h>

#include <memory>

#include "parallel/comm/communicator.h"

/// Collectives as steps of an autograd graph, with their true adjoints. The loss that is
/// differentiated is the sum of all ranks' losses.
///
/// Every rank calls, forward and backward, also with zero rows. So that a backward pass has the
/// same collectives on all ranks, outputs require gradients whenever the group has more than one
/// rank and gradients are enabled, even if this rank's input does not. Every rank's loss must
/// depend on every output. A group of one rank returns its input and makes no calls.
///
/// Tensors need not be contiguous. Integers pass without gradients. `comm` must outlive the graph.
/// No second derivatives (TORCH_CHECK).
namespace shoal {

struct ExchangeState;

/// An all_to_all in flight: finish_all_to_all returns the rows.
struct StartedExchange {
  torch::Tensor link;  ///< joins start and finish in the graph, if there is one
  torch::Tensor rows;  ///< group of one rank: the result
  std::shared_ptr<ExchangeState> state;
};

/// Sends each row to its rank. rows [sum(send_rows), ...]; counts are rows, one per rank.
/// Backward: waits for the exchange that finish_all_to_all's backward started, so what runs between
/// start and finish overlaps in both directions. Finish in any order, equal on all ranks.
/// Throws: TORCH_CHECK on a count mismatch; CommError from the backend.
/// Source: Shazeer et al. 2017, section 3.1.
StartedExchange start_all_to_all(const torch::Tensor& rows, const RowCounts& send_rows,
                                 const RowCounts& recv_rows, Communicator& comm);
/// Returns the received rows [sum(recv_rows), ...], by source rank, then source order; once a
/// start.
torch::Tensor finish_all_to_all(StartedExchange started);

/// start + finish.
torch::Tensor all_to_all(const torch::Tensor& rows, const RowCounts& send_rows,
                         const RowCounts& recv_rows, Communicator& comm);

/// Sum over ranks; the adjoint is the same sum.
torch::Tensor all_reduce_sum(const torch::Tensor& tensor, Communicator& comm);

}  // namespace shoal
