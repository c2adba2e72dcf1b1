#pragma once

#include <torch/types.h>

#include <cstdint>

#include "moe/kernels/permute_rows.h"
#include "parallel/comm/communicator.h"

// T tokens  D width  A rows this rank sends  R rows it receives  W combine weights
namespace shoal {

/// Dtypes and width of rows and combine weights.
struct PackedType {
  torch::Dtype row, weight;
  int64_t width;  ///< D, at least 1
};

/// A buffer of rows and combine weights, so that one all-to-all moves both: for each rank its rows,
/// then its weights in as many further rows as their bytes fill. Bits are kept, whatever the two
/// dtypes.
struct PackedLayout {
  PackedType type;
  torch::Dtype piece;     ///< the widest integer whose size divides that of rows and of weights
  int64_t num_rows;       ///< rows of the buffer
  torch::Tensor row_A;    ///< int64: buffer row of each row
  torch::Tensor piece_W;  ///< int64: position of each weight, counted in integers of `piece`
};
/// Lays out a buffer. `rows_E`, `weights_E`: rows and weights by rank.
PackedLayout packed_layout(const RowCounts& rows_E, const RowCounts& weights_E,
                           const PackedType& type, const torch::Device& device);
/// Returns the rows of the buffer by rank, those of weights included.
RowCounts packed_counts(const RowCounts& rows_E, const RowCounts& weights_E,
                        const PackedType& type);

/// Packs gather_rows(x_TD, index), in the layout's dtype, and weight_W into a buffer to send: one
/// node of the graph, whose backward pass takes both gradients out of the buffer's.
torch::Tensor pack_rows(const torch::Tensor& x_TD, const torch::Tensor& weight_W,
                        const RowIndex& index, const PackedLayout& layout);

struct RowsWithWeights {
  torch::Tensor rows_RD, weight_W;
};
/// Unpacks a received buffer, rows in `dtype`. Rows and weights come in the order `order_R`, with
/// one weight a row; undefined: as received. One node of the graph, whose backward pass packs both
/// gradients into the buffer's.
RowsWithWeights unpack_rows(const torch::Tensor& buffer, const torch::Tensor& order_R,
                            torch::Dtype dtype, const PackedLayout& layout);

}  // namespace shoal
