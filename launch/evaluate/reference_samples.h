#pragma once

#include <cstdint>
#include <memory>

#include "runtime/data/data_source.h"

namespace shoal {

/// Selects at most `most` evenly spaced samples of a set, in order. `all` must outlive the result.
std::unique_ptr<const SampleSet> spread_samples(const SampleSet& all, int64_t most);

}  // namespace shoal
