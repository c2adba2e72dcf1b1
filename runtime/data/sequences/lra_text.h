#pragma once

#include <cstdint>
#include <memory>
#include <tuple>

#include "runtime/data/data_source.h"
#include "runtime/data/sequences/lra_files.h"

namespace shoal {

/// Texts to classify by their bytes, as the Long Range Arena reads movie reviews; from local files
/// of lines `label<TAB>text`. Of a longer text the first max_length bytes are read.
class LraTextSource : public DataSource {
 public:
  struct Options {
    LraFiles files;
    int64_t max_length = 4096;
    int64_t classes = 2;

    static constexpr auto fields() {
      return std::tuple{
          inlined(&Options::files),
          field("max_length", &Options::max_length, "bytes that are read of a text", unit("tokens"),
                in_range(1, 1 << 20)),
          field("classes", &Options::classes, "number of classes", in_range(2, 10000))};
    }
  };

  explicit LraTextSource(const Options& options) : options_(options) {}

  DataShape shape() const override;
  void check_training(Problems& problems) const override {
    options_.files.check_training(problems);
  }
  std::unique_ptr<SampleSet> open(Split split) const override;

 private:
  Options options_;
};

}  // namespace shoal
