#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/data/augment.h"
#include "runtime/data/image_shape.h"
#include "runtime/recipe/config.h"
#include "runtime/recipe/registry.h"

namespace shoal {

/// One record of a data set: an image, one byte a value, and its class.
struct Sample {
  ImageShape shape;
  std::vector<uint8_t> pixel_CHW;
  int64_t label = 0;
};

enum class Split { kTrain, kValid };

/// What to do with a record that cannot be used (recipe key `on_corrupt` of sources with files).
enum class OnCorrupt {
  kFail,  ///< end with an error that names file and record
  kSkip,  ///< take the next good record instead, as long as at most 1e-4 of all are corrupt
};

template <>
struct EnumNames<OnCorrupt> {
  static constexpr std::array names{std::pair{OnCorrupt::kFail, "fail"},
                                    std::pair{OnCorrupt::kSkip, "skip"}};
};

/// The records of one split, opened and checked.
class SampleSet {
 public:
  virtual ~SampleSet() = default;
  virtual int64_t size() const = 0;
  /// How many records are replaced by others because they are corrupt; for the log.
  virtual int64_t num_substituted() const { return 0; }
  /// Record `index`, 0 <= index < size(); always the same. Safe from several threads at once.
  /// Throws: DataError naming file and record.
  virtual Sample read(int64_t index) const = 0;
};

/// Where samples come from; registered under `data.source`, its keys stand in `data` itself.
/// Constructing a source opens nothing: `check` and `show` learn shapes and classes without data.
class DataSource {
 public:
  struct Context {};
  static constexpr std::string_view kNameKey = "source";
  static constexpr std::string_view kNoun = "data source";

  virtual ~DataSource() = default;
  virtual ImageShape image_shape() const = 0;
  virtual int64_t num_classes() const = 0;
  /// Mean and standard deviation a channel, of pixels in [0, 1]: the default normalisation.
  virtual ChannelStats channel_stats() const = 0;
  /// What stands against training on one split and judging by the other, at keys of `data`: the
  /// same records in both. Asked for training only; evaluating on training data is legitimate.
  virtual void check_training(Problems&) const {}
  /// Opens this split and no other. Throws: DataError if its files are missing or wrong.
  virtual std::unique_ptr<SampleSet> open(Split split) const = 0;
};

/// The recipe's section `data`.
struct DataOptions {
  Choice<DataSource> source;
  AugmentOptions augment;
  NormaliseOptions normalise;
  int64_t prefetch = 2;

  static constexpr auto fields() {
    return std::tuple{
        inlined(&DataOptions::source),
        field("augment", &DataOptions::augment, "random changes of training images"),
        field("normalise", &DataOptions::normalise, "shift and scale of the channels"),
        field("prefetch", &DataOptions::prefetch,
              "micro-batches prepared ahead by a thread; 0 = none, no thread", in_range(0, 64))};
  }
};

}  // namespace shoal
