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
#include "runtime/options/config.h"
#include "runtime/options/registry.h"
#include "runtime/text/tokenizer.h"

namespace shoal {

/// One record of a data set. The source's DataShape tells which of these a record has.
struct Sample {
  ImageShape shape;                ///< of this image; where a crop follows, images differ in size
  std::vector<uint8_t> pixel_CHW;  ///< one byte per channel and pixel
  std::vector<int64_t> token_S = {};        ///< `sequence` of them; fewer only if has_lengths
  std::vector<int64_t> token_label_S = {};  ///< one per token; kNoLabel (batch.h): none
  std::vector<double> value_N = {};
  int64_t label = 0;
  std::vector<double> target_M = {};
};

enum class Split { kTrain, kValid };

/// What to do with a record that cannot be used (recipe key `on_corrupt` of sources with files).
enum class OnCorrupt {
  kFail,  ///< end with an error that names file and record
  kSkip,  ///< use the next good record instead; an error if more than 1e-4 of all are corrupt
};

template <>
struct EnumNames<OnCorrupt> {
  static constexpr std::array names{std::pair{OnCorrupt::kFail, "fail"},
                                    std::pair{OnCorrupt::kSkip, "skip"}};
};

/// The records of one split, whose files have been opened and checked.
class SampleSet {
 public:
  virtual ~SampleSet() = default;
  virtual int64_t size() const = 0;
  /// The corrupt records that this process has read so far and replaced by others, in ascending
  /// order; for the log.
  virtual std::vector<int64_t> substituted() const { return {}; }
  /// Record `index`, in [0, size()), of epoch `epoch`, counted from 0. The same two numbers always
  /// give the same record. Evaluation reads epoch 0. Several threads may call it at once.
  /// Throws: DataError that names file and record.
  virtual Sample read(int64_t index, int64_t epoch) const = 0;
  /// Of text: its bytes and words, for bits per byte and word perplexity. May read all files.
  virtual std::optional<TextCounts> text_counts() const { return std::nullopt; }
  /// Lines for the log: what was done to open the split and, where corrupt records are found only
  /// when they are read, which ones have been replaced so far.
  virtual std::vector<std::string> notes() const { return {}; }
  /// Names and sizes of the files and a hash of some of their blocks. A resumed run compares it
  /// with that of its checkpoint. Empty for data that is generated from the recipe alone.
  virtual std::string fingerprint() const { return {}; }
  /// Tokenizer::identity() of the tokenizer that made the token ids. Empty if it is not known, or
  /// if the records have no tokens.
  virtual std::string tokenizer_identity() const { return {}; }
};

/// A data set with its splits. Registered under `data.source`; its keys stand in `data` itself.
/// The constructor opens no file, so that `check` and `show` know the shape without the data.
class DataSource {
 public:
  struct Context {
    uint64_t seed = 0;  ///< run.seed, for sources that draw their samples
    /// evaluate.stride, from 1 to the length of a sequence. Only for sources with windows.
    std::optional<int64_t> evaluation_stride = {};
    std::string cache_folder =
        {};  ///< the user's, where encoded copies of files are kept; "": none
  };
  /// A source in a first recipe, with values for a first training.
  struct Sketch {
    std::optional<ImageShape> image = {};  ///< none: tokens
    bool has_classes = false;              ///< of tokens: a class for each sample
    std::string_view path = "";    ///< data.path unless the user gives it; "": needs no files
    std::string_view files = "";   ///< what is in the folder
    std::string_view lines = "";   ///< further keys of `data`
    std::string_view change = "";  ///< augmentation of images that are classified
    bool is_usual = false;         ///< of images, or of tokens, unless the user names another
  };
  static constexpr std::string_view kNameKey = "source";
  static constexpr std::string_view kNoun = "data source";

  virtual ~DataSource() = default;
  virtual DataShape shape() const = 0;
  /// The names of the classes, by label, to be shown to people. Empty if they are not known. May
  /// read small files; a missing one is not an error.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// Whether samples are windows of one long stream. In an evaluation, each begins
  /// Context::evaluation_stride after the one before.
  virtual bool has_windows() const { return false; }
  /// The tokenizer of its text; null without text. Throws DataError if its files are wrong.
  virtual std::shared_ptr<const Tokenizer> tokenizer() const { return nullptr; }
  /// How its images are normalised and augmented; nothing without images. Throws ConfigError.
  virtual std::optional<ImageTransform> image_transform() const { return std::nullopt; }
  /// Adds overlap between the training and validation split as problems, at keys of `data`. Called
  /// before training only: an evaluation may use the training data.
  virtual void check_training(Problems&) const {}
  /// All files and folders of the splits and of the tokenizer, whether they exist or not.
  virtual std::vector<std::string> files() const { return {}; }
  /// Opens the files of this split only. Throws: DataError if they are missing or wrong.
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
              "micro-batches prepared ahead by a thread; 0 = none, no thread", in_range(0, 64),
              on_resume(OnResume::kFree)),
        field("workers", &DataOptions::workers,
              "threads that read and augment samples; auto: the cores that a rank's threads leave, "
              "at least 1",
              in_range(1, 256), unset_word("auto"), on_resume(OnResume::kFree))};
  }
};

}  // namespace shoal
