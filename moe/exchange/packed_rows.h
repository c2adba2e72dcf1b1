#pragma once

#include <torch/types.h>

#include <cstdint>

#include "moe/kernels/permute_rows.h"
#include "parallel/comm/communicator.h"

// T tokens  D width  A rows this rank sends  R rows it receives  W combine weights
// B rows of a buffer
namespace shoal {

/// Dtypes and width of the rows and combine weights that a MoE layer sends to its units (experts).
struct PackedType {
  torch::Dtype row, weight;
  int64_t width;  ///< D, at least 1

  int64_t row_bytes() const { return width * static_cast<int64_t>(elementSize(row)); }
  int64_t weight_bytes() const { return static_cast<int64_t>(elementSize(weight)); }
  /// Returns the widest integer dtype whose bytes divide a row's and a weight's.
  torch::Dtype piece() const;
};

/// The layout of a buffer of rows and combine weights, so that one all-to-all moves both. For each
/// rank the buffer has the rows, then the weights, bit by bit in as many rows as they fill. A row
/// has one weight or, on its way to another node, one for each of its units there.
struct PackedLayout {
  PackedType type{};
  torch::Tensor piece_W;  ///< int64: position of each weight, counted in integers of type.piece()
  int64_t num_rows = 0;   ///< rows of the buffer; rows that hold weights count too
  /// Buffers to send: the tokens and their buffer rows. Rows of weights are padding.
  RowIndex index = {};
  torch::Tensor row_R = {};  ///< received buffers: buffer row of each row
  /// Received buffers: inverse of row_R, -1 for weights. If undefined, the backward pass makes it.
  torch::Tensor held_B = {};
};
/// Lays out a received buffer. `rows_E`, `weights_E`: numbers of rows and weights by rank. Rows and
/// weights are in the order of arrival or, if order_R is defined, in another: each row has one
/// weight, and row i is the one that arrives as order_R[i].
PackedLayout packed_layout(const RowCounts& rows_E, const RowCounts& weights_E,
                           const PackedType& type, const torch::Device& device,
                           const torch::Tensor& order_R = {});
/// Turns the layout of a received buffer into that of a buffer to send, with the rows of `index`.
PackedLayout layout_to_send(PackedLayout layout, const RowIndex& index);
/// Returns the number of rows of the buffer by rank; rows that hold weights count too.
RowCounts packed_counts(const RowCounts& rows_E, const RowCounts& weights_E,
                        const PackedType& type);

/// Packs the tokens' rows, cast to the layout's dtype, and weight_W into a buffer to send. One
/// autograd node; backward takes both gradients out of the buffer's gradient. TORCH_CHECK unless
/// the layout is of a buffer to send.
torch::Tensor pack_rows(const torch::Tensor& x_TD, const torch::Tensor& weight_W,
                        const PackedLayout& layout);

struct RowsWithWeights {
  torch::Tensor rows_RD, weight_W;
};
/// Unpacks a received buffer, in the order of its layout. Rows are cast to `dtype`. One autograd
/// node, whose backward pass packs both gradients into the buffer's gradient.
RowsWithWeights unpack_rows(const torch::Tensor& buffer, torch::Dtype dtype,
                            const PackedLayout& layout);

/// Returns int64: for each v the rows_V[v] integers from first_V[v] on. `total`: the sum of rows_V.
torch::Tensor indices_of_runs(const torch::Tensor& first_V, const torch::Tensor& rows_V,
                              int64_t total);

}  // namespace shoal
