#include "runtime/data/cifar.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "runtime/cifar_records.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

constexpr ImageShape kShape{CifarLayout::kChannels, CifarLayout::kSide, CifarLayout::kSide};

std::vector<std::string> official_files(int64_t classes, Split split) {
  if (classes == 100) return {split == Split::kTrain ? "train.bin" : "test.bin"};
  if (split == Split::kValid) return {"test_batch.bin"};
  std::vector<std::string> files;
  for (int batch = 1; batch <= 5; ++batch) {
    files.push_back("data_batch_" + std::to_string(batch) + ".bin");
  }
  return files;
}

/// Files one after the other.
class CifarSet final : public SampleSet {
 public:
  CifarSet(const std::vector<std::string>& paths, CifarLayout layout) {
    for (const std::string& path : paths) {
      files_.emplace_back(path, layout);
      end_of_file_.push_back(size() + files_.back().size());
    }
  }

  int64_t size() const override { return end_of_file_.empty() ? 0 : end_of_file_.back(); }

  Sample read(int64_t index) const override {
    const auto end = std::upper_bound(end_of_file_.begin(), end_of_file_.end() - 1, index);
    const auto file = static_cast<size_t>(end - end_of_file_.begin());
    const int64_t first = file == 0 ? 0 : end_of_file_[file - 1];
    CifarRecord record = files_[file].read(index - first);
    return {kShape, std::move(record.pixel_CHW), record.label};
  }

 private:
  std::vector<CifarFile> files_;
  std::vector<int64_t> end_of_file_;  // records up to and with each file
};

const Registration<DataSource, CifarSource> registered{
    "cifar", "CIFAR-10 or CIFAR-100, official binary files"};

}  // namespace

std::vector<std::string> CifarSource::Options::paths(Split split) const {
  const SplitOptions& chosen = split == Split::kTrain ? train : valid;
  const fs::path folder =
      path.value_or(classes == 100 ? "cifar-100-binary" : "cifar-10-batches-bin");
  std::vector<std::string> paths;
  for (const std::string& file : chosen.files.value_or(official_files(classes, split))) {
    paths.push_back((folder / file).lexically_normal().string());
  }
  return paths;
}

void CifarSource::Options::validate(Problems& problems) const {
  if (classes != 10 && classes != 100) problems.add("classes", "must be 10 or 100");
  std::set<std::string> train_paths;
  for (const std::string& file : paths(Split::kTrain)) {
    if (!train_paths.insert(file).second) problems.add("train.files", file + " is named twice");
  }
  std::set<std::string> valid_paths;
  for (const std::string& file : paths(Split::kValid)) {
    if (!valid_paths.insert(file).second) problems.add("valid.files", file + " is named twice");
    if (train_paths.contains(file)) {
      problems.add("valid.files", file + " is trained on as well; set train.files without it");
    }
  }
}

ImageShape CifarSource::image_shape() const { return kShape; }

ChannelStats CifarSource::channel_stats() const {
  // Over the training images of each set.
  if (options_.classes == 100) return {{0.5071, 0.4865, 0.4409}, {0.2673, 0.2564, 0.2762}};
  return {{0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}};
}

std::unique_ptr<SampleSet> CifarSource::open(Split split) const {
  return std::make_unique<CifarSet>(options_.paths(split), CifarLayout{options_.classes});
}

}  // namespace shoal
