#pragma once

#include <cstdint>

namespace shoal {

/// Consecutive positions in the stream of samples, epoch after epoch: [first, first + count).
struct SampleRange {
  int64_t first = 0;
  int64_t count = 0;

  int64_t end() const { return first + count; }
  bool operator==(const SampleRange&) const = default;
};

/// Returns the part of micro-step `micro` that belongs to rank r = `rank` of W = `world` ranks.
/// `micro` has the samples of all ranks: G routing groups of `group` samples, which are never
/// split. Only the last group may be short. Rank r gets groups [G·r/W, G·(r+1)/W), rounded down.
/// The parts are contiguous, in rank order, and differ by at most one group; a part may be empty.
SampleRange samples_of_rank(SampleRange micro, int64_t group, int64_t rank, int64_t world);

/// How the stream is divided into optimizer steps, micro-steps and routing groups.
struct StepCut {
  int64_t batch = 0;       ///< samples of an optimizer step over all ranks
  int64_t accumulate = 1;  ///< micro-steps of a step; batch / accumulate is a multiple of group
  int64_t group = 8;       ///< samples of a routing group, whose tokens compete for experts

  int64_t micro_samples() const { return batch / accumulate; }
};

/// The order of N training samples. Position p of the stream is place p mod N of epoch p / N. The
/// order within an epoch depends on (seed, epoch) alone. Optimizer steps may span epochs.
class DataOrder {
 public:
  /// num_samples = N. Without `shuffle`, position p is sample p mod N.
  DataOrder(uint64_t seed, int64_t num_samples, bool shuffle)
      : seed_(seed), num_samples_(num_samples), shuffle_(shuffle) {}

  /// Returns the index of the sample at a position >= 0; N > 0. Safe from several threads at once.
  int64_t sample_at(int64_t position) const;
  /// The epoch of a position, from 0.
  int64_t epoch_of(int64_t position) const { return position / num_samples_; }

 private:
  uint64_t seed_;
  int64_t num_samples_;
  bool shuffle_;
};

}  // namespace shoal
