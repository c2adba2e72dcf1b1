#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace shoal {

/// Size of one image, [channels, height, width] pixels.
struct ImageShape {
  int64_t channels = 3, height = 32, width = 32;

  int64_t pixels() const { return height * width; }
  int64_t bytes() const { return channels * height * width; }  ///< one byte a value
  bool operator==(const ImageShape&) const = default;
};

inline constexpr int64_t kUnknownClasses = 2;  ///< stands for a number that is not known yet

/// What the samples of a data source contain, known before a file is opened; models are sized by
/// it. 0 or nothing marks an absent part.
struct DataShape {
  std::string source;                    ///< the source's name in recipes, for messages
  std::optional<ImageShape> image = {};  ///< size of the images in a batch
  bool has_unit_pixels = false;          ///< pixels in [0, 1] as stored, not normalised
  int64_t sequence = 0;                  ///< tokens of a sample; with has_lengths the maximum
  int64_t vocabulary = 0;                ///< token ids are below this
  /// Number of labelled tokens of every training sample; their labels are below `vocabulary` too.
  /// For text: `sequence`.
  int64_t token_labels = 0;
  bool has_lengths = false;          ///< true if samples may have fewer tokens than `sequence`
  int64_t values = 0;                ///< number of plain input numbers
  int64_t classes = 0;               ///< labels are below this
  int64_t targets = 0;               ///< number of values to predict
  bool has_unknown_classes = false;  ///< `classes` is kUnknownClasses: the data is not there

  /// "images of 3 x 32 x 32 and labels of 10 classes".
  std::string text() const;
};

/// The size of a text in three units. bytes and words are 0 where they are not known.
struct TextCounts {
  int64_t tokens = 0;
  int64_t bytes = 0;  ///< of the text before it was split into tokens
  int64_t words = 0;  ///< runs of bytes between white space
};

}  // namespace shoal
