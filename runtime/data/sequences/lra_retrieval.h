#pragma once

#include <cstdint>
#include <memory>
#include <tuple>

#include "runtime/data/data_source.h"
#include "runtime/data/sequences/lra_files.h"

namespace shoal {

/// Pairs of texts, to tell whether they belong together: the Long Range Arena's task on the ACL
/// Anthology Network, from its files of lines `label, id1, id2, text1, text2` between tabs. A
/// sample is the first max_length bytes of text1, a separator and those of text2. LRA encodes the
/// two apart and compares their features; here the model sees both at once.
class LraRetrievalSource : public DataSource {
 public:
  struct Options {
    LraFiles files;
    int64_t max_length = 4000;

    static constexpr auto fields() {
      return std::tuple{inlined(&Options::files), field("max_length", &Options::max_length,
                                                        "bytes that are read of each text",
                                                        unit("tokens"), in_range(1, 1 << 19))};
    }
  };

  /// The token between the texts.
  static constexpr int64_t kSeparator = kLraVocabulary;

  explicit LraRetrievalSource(const Options& options) : options_(options) {}

  DataShape shape() const override;
  void check_training(Problems& problems) const override {
    options_.files.check_training(problems);
  }
  std::unique_ptr<SampleSet> open(Split split) const override;

 private:
  Options options_;
};

}  // namespace shoal
