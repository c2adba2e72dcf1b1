#pragma once

#include <cstdint>

struct CUstream_st;

// A rows sent  R rows received  u units on this rank  E ranks  B rows of a buffer  W weights

/// The CUDA kernel that plans an all-to-all of a MoE layer (moe/exchange/dispatch_plan.h).
namespace shoal::dispatch_plan_cuda {

/// What the kernel takes: E ranks, and u E numbers of rows received. Larger plans are made by
/// LibTorch's operators, a dozen launches each.
inline constexpr int kMostRanks = 240, kMostBlocks = 5000;

/// A buffer of rows and weights, by rank. Outputs are in GPU memory.
struct Buffer {
  int32_t rows_E1[kMostRanks + 1];    ///< sums of the rows, from 0 on; as many weights
  int32_t packed_E1[kMostRanks + 1];  ///< sums of the rows of the buffer
  int64_t* held_B;   ///< token or row that each row of the buffer holds; -1: weights
  int64_t* row_A;    ///< rows of the buffer, as held_B's inverse
  int64_t* piece_W;  ///< position of each weight, counted in pieces
};

/// Rows and weights are sent in order, and taken by units sorted by (unit, rank).
struct Plan {
  int num_ranks, own_units;
  int num_listed;                  ///< entries of row_A
  int row_pieces;                  ///< pieces of a row
  int weight_shift;                ///< a weight has 2^weight_shift pieces
  const int64_t *token_A, *row_A;  ///< tokens of the rows sent, and lists of the tokens' rows
  const int64_t* count_Eu;         ///< rows received
  Buffer to_send, received;
  int64_t *to_units_R, *to_arrival_R;
  int32_t* end_u;  ///< inclusive sums of the units' rows
};
static_assert(sizeof(Plan) <= 4096, "CUDA's limit for the parameters of a kernel");
void launch_place_rows(const Plan& plan, CUstream_st* stream);

}  // namespace shoal::dispatch_plan_cuda
