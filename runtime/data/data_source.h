#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/data/augment.h"
#include "runtime/data/data_shape.h"
#include "runtime/data/text_counts.h"
#include "runtime/recipe/config.h"
#include "runtime/recipe/registry.h"
#include "runtime/text/tokenizer.h"

namespace shoal {

/// One record of a data set: what its source's DataShape lists.
struct Sample {
  ImageShape shape;  ///< of this record's image: the source's, or any where a crop follows
  std::vector<uint8_t> pixel_CHW;           ///< one byte a value
  std::vector<int64_t> token_S = {};        ///< may be fewer than `sequence` if has_lengths
  std::vector<int64_t> token_label_S = {};  ///< one a token; kNoLabel (batch.h): not scored
  std::vector<double> value_N = {};
  int64_t label = 0;
  std::vector<double> target_M = {};
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
  /// Records that others replace because they are corrupt, in order, as far as this process has met
  /// them; for the log.
  virtual std::vector<int64_t> substituted() const { return {}; }
  /// Record `index`, 0 <= index < size(), of a pass over the data, counted from 0: always the same
  /// for both numbers. Evaluation reads pass 0. Safe from several threads at once.
  /// Throws: DataError naming file and record.
  virtual Sample read(int64_t index, int64_t epoch) const = 0;
  /// Of text: what bits per byte and perplexity per word are computed from. May read all of it.
  virtual std::optional<TextCounts> text_counts() const { return std::nullopt; }
  /// What users should know of them, for the log, a line each: what opening them did and, where
  /// records are found corrupt only when they are read, which were replaced so far.
  virtual std::vector<std::string> notes() const { return {}; }
  /// Names and sizes of files with a hash of parts of them, by which a resumed run compares its
  /// data; empty for data that the recipe alone defines.
  virtual std::string fingerprint() const { return {}; }
  /// Tokenizer::identity() of what made their token ids; empty where it is not known, or there are
  /// none.
  virtual std::string tokenizer_identity() const { return {}; }
};

/// Where samples come from; registered under `data.source`, its keys are in `data` itself.
/// Constructing a source opens nothing: `check` and `show` need its shape without data.
class DataSource {
 public:
  struct Context {
    uint64_t seed = 0;  ///< run.seed, for draws of the source's own
    /// evaluate.stride, 1 <= stride <= the sequence; only for sources that have windows.
    std::optional<int64_t> evaluation_stride = {};
    std::string cache_folder =
        {};  ///< the user's, for what is made once of files; "": there is none
  };
  static constexpr std::string_view kNameKey = "source";
  static constexpr std::string_view kNoun = "data source";

  virtual ~DataSource() = default;
  virtual DataShape shape() const = 0;
  /// What its classes are called, by label, for people; empty where nothing says so. Reads small
  /// files at most; one that is missing is no error.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// Whether its samples are windows of a stream, whose distance in evaluation is
  /// Context::evaluation_stride.
  virtual bool has_windows() const { return false; }
  /// How its text became tokens; null without text. Throws DataError for files of its own.
  virtual std::shared_ptr<const Tokenizer> tokenizer() const { return nullptr; }
  /// What becomes of its images; nothing without images. Throws ConfigError.
  virtual std::optional<ImageTransform> image_transform() const { return std::nullopt; }
  /// Overlap between the training and validation split, as problems at keys of `data`. Called for
  /// training only; evaluating on training data is legitimate.
  virtual void check_training(Problems&) const {}
  /// The files and folders that opening the splits needs, tokenizers' too; none are looked for.
  virtual std::vector<std::string> files() const { return {}; }
  /// Opens this split and no other. Throws: DataError if its files are missing or wrong.
  virtual std::unique_ptr<SampleSet> open(Split split) const = 0;
};

/// The recipe's section `data`.
struct DataOptions {
  Choice<DataSource> source;
  int64_t prefetch = 2;
  std::optional<int64_t> workers;

  static constexpr auto fields() {
    return std::tuple{
        inlined(&DataOptions::source),
        field("prefetch", &DataOptions::prefetch,
              "micro-batches prepared ahead by a thread; 0 = none, no thread", in_range(0, 64)),
        field("workers", &DataOptions::workers,
              "threads that read and augment samples; auto: the cores that a rank's threads leave, "
              "at least 1",
              in_range(1, 256), unset_word("auto"))};
  }
};

}  // namespace shoal
