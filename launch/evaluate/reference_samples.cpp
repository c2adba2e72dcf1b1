#include "launch/evaluate/reference_samples.h"

#include <algorithm>
#include <optional>

#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/error.h"
#include "runtime/data/loader/loader.h"

namespace shoal {
namespace {

class SpreadSamples : public SampleSet {
 public:
  SpreadSamples(const SampleSet& all, int64_t most)
      : all_(all), size_(std::min(most, all.size())) {}
  int64_t size() const override { return size_; }
  Sample read(int64_t index, int64_t epoch) const override {
    return all_.read(static_cast<int64_t>(static_cast<__int128>(index) * all_.size() / size_),
                     epoch);
  }

 private:
  const SampleSet& all_;
  int64_t size_;
};

}  // namespace

std::unique_ptr<const SampleSet> spread_samples(const SampleSet& all, int64_t most) {
  return std::make_unique<SpreadSamples>(all, most);
}

bool add_references(References& references, const EvaluationParts& parts,
                    const Interrupted& interrupted) {
  references.clear();
  if (references.most_samples() == 0) return true;
  std::optional<OpenSplit> opened;
  on_every_rank(*parts.grid.world, [&] {
    if (parts.train_data != nullptr) return;
    opened = open_split(parts.data.source, Split::kTrain, parts.data.workers);
    if (opened->samples->size() > 0) return;
    throw DataError("data.train has no samples, and neighbours are looked for among them",
                    "name files that hold some, or set task.references: 0");
  });
  const OpenSplit& train = opened ? *opened : *parts.train_data;
  const auto samples = spread_samples(*train.samples, references.most_samples());
  EvalLoader loader(*samples, loader_settings(parts.recipe, train, parts.grid));
  int64_t batches = 0;
  while (const std::optional<Batch> batch = loader.next()) {
    if (interrupted && interrupted()) return false;
    references.add(*batch);
    if (parts.progress) parts.progress("references", ++batches, loader.num_batches());
  }
  return true;
}

}  // namespace shoal
