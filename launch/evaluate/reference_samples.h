#pragma once

#include <cstdint>
#include <memory>

#include "launch/evaluate/evaluation.h"
#include "models/references.h"
#include "runtime/data/data_source.h"

namespace shoal {

/// Selects at most `most` evenly spaced samples of a set, in order. `all` must outlive the result.
std::unique_ptr<const SampleSet> spread_samples(const SampleSet& all, int64_t most);

/// Replaces a task's references by evenly spaced samples of data.train, without augmentation.
/// Collective. Returns false if interrupted. Throws DataError on every rank if data.train cannot be
/// opened or is empty.
bool add_references(References& references, const EvaluationParts& parts,
                    const Interrupted& interrupted);

}  // namespace shoal
