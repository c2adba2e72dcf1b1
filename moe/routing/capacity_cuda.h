#pragma once

#include <cstdint>

#include "runtime/base/exact_share.h"

struct CUstream_st;

// T tokens  K choices per token  U units  N = T K choices  C chunks of choices

/// Kernels of moe/routing/capacity.h. Pointers are to GPU memory; each call is queued on the
/// stream.
namespace shoal::capacity_cuda {

/// Choices in runs of `length`, the last may be shorter; one warp for each.
struct Chunks {
  int64_t num_choices, length;
  int count;  ///< C
  int num_units;
};

/// The order in which the choices of a group take places.
struct Order {
  const int64_t* choice;  ///< place -> choice in the group; nullptr: see below
  const int64_t* token;   ///< place -> token, counted in the group; nullptr: in the order of tokens
  bool slot_major;        ///< all first choices, then all second choices, ...; else in order
};

struct Limit {
  const int64_t* unit_N;
  int64_t* kept_unit_N;  ///< the unit; -1 if the choice is masked or dropped
  int64_t* count_UC;     ///< rows of each unit and group
  int64_t k;
  bool padded;  ///< rows are padded to the capacity
  CapacityRule rule;
  Order order;
};
/// Assigns each unit's places in each group, which are the chunks, to its first choices in `order`.
/// Lists of an order have `chunks.length` (or that over K) entries a group.
void launch_limit(const Chunks& chunks, const Limit& job, CUstream_st* stream);

/// Counts the choices of each unit in each chunk; -1 is ignored.
void launch_count(const Chunks& chunks, const int64_t* unit_N, int64_t* count_UC,
                  CUstream_st* stream);

struct Place {
  const int64_t* unit_N;
  const int64_t* end_UC;    ///< inclusive sums of the counts
  const int64_t* count_UC;  ///< rows of each unit and chunk
  int64_t *token_A, *choice_A;
  int64_t k;
};
/// Writes each choice with a unit to its row, sorted by unit, then chunk, then choice.
void launch_place(const Chunks& chunks, const Place& job, CUstream_st* stream);

}  // namespace shoal::capacity_cuda
