#pragma once

#include <cstdint>
#include <memory>

#include "launch/evaluate/evaluation.h"
#include "models/references.h"
#include "runtime/data/data_source.h"

namespace shoal {

/// At most `most` evenly spaced samples of a set, in order. `all` must outlive them.
std::unique_ptr<const SampleSet> spread_samples(const SampleSet& all, int64_t most);

/// Replaces a task's references by evenly spaced samples of data.train, loaded as for evaluation.
/// Collective. False if it was interrupted. Throws DataError on every rank if data.train cannot be
/// opened or is empty.
bool add_references(References& references, const EvaluationParts& parts,
                    const Interrupted& interrupted);

}  // namespace shoal
