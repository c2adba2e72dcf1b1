#pragma once

#include <cstdint>

#include "runtime/base/exact_share.h"

struct CUstream_st;

// T tokens  K choices per token  U units  N = T K choices  C chunks of choices  A rows

/// CUDA kernels that apply capacity to a router's choices (moe/routing/capacity.h). launch_limit
/// decides which choices each unit (expert) keeps; without a capacity, launch_count counts all.
/// Then launch_place sorts the kept choices by unit. Choice i belongs to token i / K. Pointers are
/// to GPU memory; each call is queued on the stream.
namespace shoal::capacity_cuda {

/// The N choices in `count` chunks of `length` (the last may be shorter), a block for each. Chunks
/// are the routing groups (samples that share a capacity) or, without a capacity, of any size.
struct Chunks {
  int64_t num_choices;
  int length;  ///< a multiple of k
  int count;   ///< C
  int num_units;
  int k;  ///< choices per token
};

/// The order in which a routing group's choices take rows. Indices count from the group's start.
struct Order {
  /// The choices in order, `length` for each group. If null, slot_major and token give the order.
  const int64_t* choice;
  const int64_t* token;  ///< for slot_major: tokens in order, length / K a group; null: as numbered
  bool slot_major;       ///< true: all first choices, then all second ones, ...; false: as numbered
};

struct Limit {
  const int64_t* unit_N;  ///< unit of each choice; -1 if masked
  int64_t* kept_unit_N;   ///< output: the unit; -1 if the choice is masked or dropped
  int64_t* count_UC;      ///< output: rows of each unit and group, padding included
  bool padded;            ///< true: count_UC is the group's capacity; false: the kept choices
  CapacityRule rule;  ///< computes a group's capacity from its number of unmasked tokens times K
  Order order;
};
/// Keeps each unit's first choices in `order`, up to the capacity. Chunks are routing groups.
void launch_limit(const Chunks& chunks, const Limit& job, CUstream_st* stream);

/// Sets count_UC to the choices of each unit in each chunk; unit -1 is ignored.
void launch_count(const Chunks& chunks, const int64_t* unit_N, int64_t* count_UC,
                  CUstream_st* stream);

struct Place {
  const int64_t* unit_N;        ///< Limit::kept_unit_N or, without a capacity, the router's units
  const int64_t* end_UC;        ///< from the caller: inclusive sums of count_UC in memory order
  const int64_t* count_UC;      ///< rows of each unit and chunk, padding included
  int64_t *token_A, *choice_A;  ///< output: token and choice of each row; not written for padding
};
/// Writes each choice whose unit is not -1 to its row. Rows are sorted by unit, then chunk, then
/// choice. The rows of a unit and chunk end with its padding.
void launch_place(const Chunks& chunks, const Place& job, CUstream_st* stream);

}  // namespace shoal::capacity_cuda
