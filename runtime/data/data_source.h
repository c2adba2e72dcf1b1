#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/data/augment.h"
#include "runtime/data/data_shape.h"
#include "runtime/options/config.h"
#include "runtime/options/registry.h"
#include "runtime/text/tokenizer.h"

namespace shoal {

/// One record of a data set. The source's DataShape says which fields are set.
struct Sample {
  ImageShape shape = {};                ///< size of the image; sizes may differ if the loader crops
  std::vector<uint8_t> pixel_CHW = {};  ///< one byte per channel and pixel
  std::vector<int64_t> token_S = {};    ///< `sequence` tokens; fewer only if has_lengths
  std::vector<int64_t> token_label_S = {};  ///< one per token; kNoLabel (batch.h): ignored
  std::vector<double> value_N = {};         ///< plain input numbers
  int64_t label = 0;                        ///< class
  std::vector<double> target_M = {};        ///< numbers to predict
};

enum class Split { kTrain, kValid };

/// Handling of records that cannot be used (recipe key `on_corrupt` of sources with files).
enum class OnCorrupt {
  kFail,  ///< end with an error that names file and record
  kSkip,  ///< use the next good record instead; fail if too many, about 1e-4 of all, are corrupt
};

template <>
inline constexpr std::array kEnumWords<OnCorrupt>{"fail", "skip"};

/// The records of one split, whose files have been opened and checked.
class SampleSet {
 public:
  virtual ~SampleSet() = default;
  virtual int64_t size() const = 0;
  /// Ascending indices of the corrupt records that this process has replaced so far, for the log.
  virtual std::vector<int64_t> substituted() const { return {}; }
  /// Returns record `index`, in [0, size()). `epoch`, from 0, matters to sources whose records
  /// change with the epoch, such as windows of a text; evaluation reads epoch 0. Deterministic.
  /// Several threads may call it at once. Throws: DataError that names file and record.
  virtual Sample read(int64_t index, int64_t epoch) const = 0;
  /// The place of record `index` in its split, of which this set may hold a part.
  virtual int64_t place(int64_t index) const { return index; }
  /// The file of record `index` for display, such as a path; "" if it has none of its own.
  virtual std::string name(int64_t /*index*/) const { return ""; }
  /// Counts of a text, from which bits per byte and word perplexity follow. May read all files.
  virtual std::optional<TextCounts> text_counts() const { return std::nullopt; }
  /// Lines for the log: what was done to open the split and, if corrupt records are only found when
  /// read, which ones have been replaced so far.
  virtual std::vector<std::string> notes() const { return {}; }
  /// Lines for the log on what is hardly meant, such as classes without a sample to train on.
  virtual std::vector<std::string> warnings() const { return {}; }
  /// Names and sizes of the files and a hash of some of their blocks, which a resumed run compares
  /// with its checkpoint. Empty for data that is generated from the recipe alone.
  virtual std::string fingerprint() const { return {}; }
  /// Name and file hash of the tokenizer that made the token ids. Empty if unknown or without ids.
  virtual std::string tokenizer_identity() const { return {}; }
};

/// A data set with its splits. Recipe key data.source names it, and its own keys are keys of
/// `data`. The constructor reads no sample: `shoal check` and `show` get shape() without the data.
/// It may look for names of classes, such as those of folders, and accepts that none are there.
class DataSource {
 public:
  struct Context {
    uint64_t seed = 0;  ///< run.seed, for sources that generate random samples
    /// Recipe key evaluate.stride, 1 to the sequence length: tokens from one evaluation window to
    /// the next. Only for sources with windows.
    std::optional<int64_t> evaluation_stride = {};
    std::string cache_folder = {};  ///< the user's cache of tokens of texts; "": no cache
  };
  /// How `shoal new`, which prints a starter recipe, writes the section `data`. A source supplies
  /// it as `static constexpr Sketch kSketch`, found by Registration; without one it is not offered.
  struct Sketch {
    std::optional<ImageShape> image = {};  ///< unset for sources of tokens
    bool has_classes = false;              ///< for token sources: true if each sample has a class
    std::string_view path = "";     ///< data.path unless the user gives it; "": needs no files
    std::string_view files = "";    ///< what the folder data.path holds, for a comment
    std::string_view lines = "";    ///< further keys of `data`: lines of YAML, indented by 2
    std::string_view augment = "";  ///< the key `augment`, likewise; left out for task `denoise`
    bool is_usual = false;          ///< the default source of images or of tokens
  };
  /// Keys of `data` that a model is trained for, whichever source has them. Evaluations on another
  /// source keep their values.
  static constexpr std::array<std::string_view, 8> kModelKeys{
      "classes",   "class_names", "image_size", "decode_side",
      "normalise", "tokenizer",   "sequence",   "valid.crop"};
  static constexpr std::string_view kNameKey = "source";    ///< recipe key that selects a source
  static constexpr std::string_view kNoun = "data source";  ///< word for messages

  virtual ~DataSource() = default;
  virtual DataShape shape() const = 0;
  /// Names of the classes by label; empty if unknown. Reads no file: the names are in the recipe
  /// (data.class_names), or the constructor found them.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// True if samples are windows of one long stream. In evaluation each begins
  /// Context::evaluation_stride tokens after the one before.
  virtual bool has_windows() const { return false; }
  /// The tokenizer of the text; null without text. Throws DataError if its files are wrong.
  virtual std::shared_ptr<const Tokenizer> tokenizer() const { return nullptr; }
  /// Augmentation and normalisation of images; nullopt without images. Throws ConfigError.
  virtual std::optional<ImageTransform> image_transform() const { return std::nullopt; }
  /// Returns a line of text as a sample without its label; nullopt if the source has no such lines.
  /// Throws DataError for a line that is not a sample.
  virtual std::optional<Sample> sample_of_line(std::string_view /*line*/) const { return {}; }
  /// Reports overlap of training and validation data at keys of `data`. Called before training.
  virtual void check_training(Problems&) const {}
  /// All files and folders of a split and of the tokenizer, existing or not.
  virtual std::vector<std::string> files(Split /*split*/) const { return {}; }
  /// Opens the files of one split. Throws: DataError if they are missing or wrong.
  virtual std::unique_ptr<SampleSet> open(Split split) const = 0;
};

/// The recipe's section `data`. A resumed run may change keys with OnResume::kFree.
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
