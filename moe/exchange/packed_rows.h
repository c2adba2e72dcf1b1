#pragma once

#include <torch/types.h>

#include <cstdint>

#include "moe/kernels/permute_rows.h"
#include "parallel/comm/communicator.h"

// T tokens  D width  A rows this rank sends  R rows it receives  W combine weights
namespace shoal {

/// Dtypes and width of the rows and combine weights that a MoE layer sends to its units (experts).
struct PackedType {
  torch::Dtype row, weight;
  int64_t width;  ///< D, at least 1
};

/// The layout of a buffer of rows and combine weights, so that one all-to-all moves both. For each
/// rank the buffer has the rows, then the weights, bit by bit in as many rows as they fill. A row
/// has one weight or, on its way to another node, one for each of its units there.
struct PackedLayout {
  PackedType type;
  torch::Dtype piece;     ///< the widest integer dtype whose bytes divide a row's and a weight's
  int64_t num_rows;       ///< rows of the buffer
  torch::Tensor row_A;    ///< int64: buffer row of each row; [R] in the layout of a received buffer
  torch::Tensor piece_W;  ///< int64: position of each weight, counted in integers of `piece`
};
/// Lays out a buffer. `rows_E`, `weights_E`: numbers of rows and weights by rank.
PackedLayout packed_layout(const RowCounts& rows_E, const RowCounts& weights_E,
                           const PackedType& type, const torch::Device& device);
/// Returns the number of rows of the buffer by rank; rows that hold weights count too.
RowCounts packed_counts(const RowCounts& rows_E, const RowCounts& weights_E,
                        const PackedType& type);

/// Packs the rows gather_rows(x_TD, index), cast to the layout's dtype, and weight_W into a buffer
/// to send. One autograd node; backward takes both gradients out of the buffer's gradient.
torch::Tensor pack_rows(const torch::Tensor& x_TD, const torch::Tensor& weight_W,
                        const RowIndex& index, const PackedLayout& layout);

struct RowsWithWeights {
  torch::Tensor rows_RD, weight_W;
};
/// Unpacks a received buffer. Rows are cast to `dtype`. If order_R is defined, each row has one
/// weight, and the result's row i and weight i are the received ones at order_R[i]; else the order
/// stays. One autograd node, whose backward pass packs both gradients into the buffer's gradient.
RowsWithWeights unpack_rows(const torch::Tensor& buffer, const torch::Tensor& order_R,
                            torch::Dtype dtype, const PackedLayout& layout);

}  // namespace shoal
