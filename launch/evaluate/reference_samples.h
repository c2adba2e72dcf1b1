#pragma once

#include <cstdint>
#include <memory>

#include "launch/evaluate/evaluation.h"
#include "models/task.h"
#include "runtime/data/data_source.h"

namespace shoal {

/// Evenly spaced samples of a set, `most` at most, in their order. `all` must outlive them.
std::unique_ptr<const SampleSet> spread_samples(const SampleSet& all, int64_t most);

/// Gives a task new references from data.train, evenly spaced, as evaluation reads them.
/// Collective. False if it was interrupted. Throws DataError on every rank if data.train cannot be
/// opened or is empty.
bool add_references(References& references, const EvaluationParts& parts,
                    const Interrupted& interrupted);

}  // namespace shoal
