#pragma once

#include <cstdint>
#include <memory>

#include "runtime/data/data_source.h"

namespace shoal {

/// Evenly spaced samples of a set, `most` at most, in their order. `all` must outlive them.
std::unique_ptr<const SampleSet> spread_samples(const SampleSet& all, int64_t most);

}  // namespace shoal
