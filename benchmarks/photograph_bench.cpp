// Photographs from their files into batches, as the recipes of MoCo v3 read them and as torchvision
// does, in turns; and packing photographs into shards, beside a copy of as many bytes.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "benchmarks/support/peer_process.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/set_up.h"
#include "launch/data/open_split.h"
#include "launch/data/recipe_source.h"
#include "launch/recipe/recipe.h"
#include "parallel/comm/communicator.h"
#include "runtime/data/images/image_list.h"
#include "runtime/data/loader/loader.h"
#include "runtime/data/shards/shard_index.h"
#include "runtime/data/shards/shard_writer.h"
#include "runtime/files/data_file.h"
#include "runtime/files/file_system.h"
#include "runtime/options/config_reader.h"

namespace shoal::bench::photograph_bench {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecipe = "configs/moco/vit_b.yaml";
constexpr int64_t kViews = 2, kBatch = 8, kWarmUpTurns = 1;
constexpr int64_t kMostPackingRounds = 5;
constexpr double kMostLevels = 2.0;  // of 255, by which decoders and filters may differ
const std::vector<std::string> kWays{"pillow", "tensor"};

struct Arguments {
  std::string folder;
  std::string python = "python3";
  std::string scratch = fs::temp_directory_path().string();
  int64_t megabytes = 300;
  int64_t rounds = 0;
};

/// A folder that lives as long as this.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& parent)
      : path_(fs::path(parent) / fmt::format("shoal_photographs_{}", getpid())) {
    fs::create_directory(path_);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string path(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

/// Pixels of one image: [3, height, width].
struct Pixels {
  std::vector<int64_t> shape;
  std::vector<double> value;
};

/// All images of a folder through the recipe's source and transforms, by one thread.
class Photographs {
 public:
  explicit Photographs(const std::string& folder) {
    const Recipe recipe = config::load_options<Recipe>(
                              {kRecipe,
                               {"data.path=" + folder, "data.classes=none", "data.train.folder=.",
                                "data.valid.folder=.", "data.workers=1"},
                               {}},
                              config::UnsetVariable::kKeep)
                              .options;
    const RankGrid grid = make_rank_grid(make_self_communicator(), 1);
    split_ = open_split(make_source(recipe), Split::kTrain);
    settings_ = loader_settings(recipe, split_, grid);
    settings_.views = kViews;
    training_ = std::make_unique<BatchMaker>(*split_.samples, settings_, true);
    evaluation_ = std::make_unique<BatchMaker>(*split_.samples, settings_, false);
  }

  int64_t size() const { return split_.samples->size(); }
  const ImageTransform& transform() const { return *settings_.images; }

  /// Microseconds an image, the mean over all.
  double us_of_work(const std::string& work) {
    const auto run = [&] {
      if (work == "decode") {
        for (int64_t i = 0; i < size(); ++i) split_.samples->read(i, 0);
      } else if (work == "evaluation") {
        make_all(*evaluation_, 0);
      } else {
        make_all(*training_, size() * num_epochs_++);
      }
    };
    return us_of(run) / static_cast<double>(size());
  }

  Pixels decoded(int64_t index) const {
    const Sample sample = split_.samples->read(index, 0);
    return {{sample.shape.channels, sample.shape.height, sample.shape.width},
            {sample.pixel_CHW.begin(), sample.pixel_CHW.end()}};
  }
  Pixels evaluated(int64_t index) const {
    const torch::Tensor image_CHW = evaluation_->make({index, 1}).image_bCHW()[0].contiguous();
    const float* value = image_CHW.const_data_ptr<float>();
    return {image_CHW.sizes().vec(), {value, value + image_CHW.numel()}};
  }

 private:
  void make_all(const BatchMaker& maker, int64_t first) const {
    for (int64_t i = 0; i < size(); i += kBatch) {
      maker.make({first + i, std::min(kBatch, size() - i)});
    }
  }

  OpenSplit split_;
  LoaderSettings settings_;
  std::unique_ptr<BatchMaker> training_, evaluation_;
  int64_t num_epochs_ = 0;
};

/// What the peer makes of one image.
template <class Value>
Pixels pixels_of_peer(PeerProcess& peer, nlohmann::json question, const std::string& file) {
  question["file"] = file;
  Pixels pixels{peer.ask(question).get<std::vector<int64_t>>(), {}};
  const MappedFile mapped(file, "");
  std::vector<Value> value(mapped.bytes().size() / sizeof(Value));
  std::memcpy(value.data(), mapped.bytes().data(), value.size() * sizeof(Value));
  pixels.value.assign(value.begin(), value.end());
  return pixels;
}

/// The largest difference of two images, `levels` one of each channel.
double largest_difference(const Pixels& ours, const Pixels& theirs,
                          const std::array<double, 3>& levels) {
  if (ours.shape != theirs.shape || ours.value.size() != theirs.value.size()) return HUGE_VAL;
  const size_t plane = ours.value.size() / 3;
  double largest = 0.0;
  for (size_t i = 0; i < ours.value.size(); ++i) {
    largest = std::max(largest, std::abs(ours.value[i] - theirs.value[i]) * levels[i / plane]);
  }
  return largest;
}

/// Both sides must decode all images to the same pixels and make the same evaluation view of them.
void compare(const Photographs& ours, PeerProcess& peer, const ScratchFolder& scratch,
             Report& out) {
  const std::vector<double>& std = ours.transform().stats.std;
  const std::array<double, 3> byte{1, 1, 1}, normalised{255 * std[0], 255 * std[1], 255 * std[2]};
  const std::string file = scratch.path("pixels");
  for (const std::string& way : kWays) {
    double decoded = 0.0, evaluated = 0.0;
    for (int64_t i = 0; i < ours.size(); ++i) {
      nlohmann::json question{{"way", way}, {"work", "decode"}, {"image", i}};
      const Pixels bytes = pixels_of_peer<uint8_t>(peer, question, file);
      decoded = std::max(decoded, largest_difference(ours.decoded(i), bytes, byte));
      question["work"] = "evaluation";
      const Pixels values = pixels_of_peer<float>(peer, question, file);
      evaluated = std::max(evaluated, largest_difference(ours.evaluated(i), values, normalised));
    }
    fmt::print("{}: decoded pixels differ by up to {:.0f} of 255, evaluation views by {:.2f}\n",
               way, decoded, evaluated);
    out.note("largest_difference_" + way, {{"decode", decoded}, {"evaluation", evaluated}});
    if (std::max(decoded, evaluated) > kMostLevels) {
      throw std::runtime_error("torchvision's images by way of " + way + " are not ours");
    }
  }
}

void measure_images(const Arguments& arguments, const std::vector<std::string>& paths,
                    const ScratchFolder& scratch, Report& out) {
  Photographs ours(arguments.folder);
  const auto peer = PeerProcess::start(arguments.python, "torchvision_views.py",
                                       "torchvision (pip install torchvision)");
  if (peer != nullptr) {
    out.note("peer", peer->ask({{"paths", paths}}));
    compare(ours, *peer, scratch, out);
  }
  out.note("images", ours.size());
  for (const std::string work : {"decode", "evaluation", "views"}) {
    std::vector<TimedContender> contenders{{"ours", [&] { return ours.us_of_work(work); }}};
    if (peer != nullptr) {
      for (const std::string& way : kWays) {
        const nlohmann::json question{{"way", way}, {"work", work}};
        contenders.push_back(
            {way, [&peer, question] { return peer->ask(question).get<double>(); }});
      }
    }
    const auto timings = take_turns(contenders, arguments.rounds, kWarmUpTurns);
    for (const Timing& timing : timings) {
      const double over_ours = timing.median_us / timings[0].median_us;
      fmt::print("{:10} {:7} {:7.1f} images/s   time over ours {:5.2f}\n", work, timing.name,
                 1e6 / timing.median_us, over_ours);
      out.add({{"work", work},
               {"contender", timing.name},
               {"median_us", timing.median_us},
               {"images_per_s", 1e6 / timing.median_us},
               {"over_ours", over_ours}});
    }
  }
}

/// Copies of the images, in folders of their own, of about `bytes` in all.
void fill_folder_with(const std::vector<std::string>& images, int64_t bytes,
                      const std::string& folder) {
  for (int64_t copy = 0; bytes > 0; ++copy) {
    const fs::path inner = fs::path(folder) / fmt::format("{:05}", copy);
    fs::create_directories(inner);
    for (size_t i = 0; i < images.size(); ++i) {
      fs::copy_file(images[i], inner / fmt::format("{:06}.jpg", i));
      bytes -= static_cast<int64_t>(fs::file_size(images[i]));
    }
  }
  ::sync();
}

/// Takes its pages out of the system's cache; they must be on the disk and mapped by nobody.
void evict(const std::string& path) {
  const int file = open_data_file(path, "");
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

/// Reads all of them, as a decoder does; the sum of whole words.
uint64_t sum_of(std::span<const std::byte> bytes) {
  uint64_t sum = 0, word = 0;
  for (size_t at = 0; at + sizeof(word) <= bytes.size(); at += sizeof(word)) {
    std::memcpy(&word, bytes.data() + at, sizeof(word));
    sum += word;
  }
  return sum;
}

/// A folder of photographs and its shards. All times are in microseconds.
class Packing {
 public:
  Packing(const ScratchFolder& scratch, const std::vector<std::string>& images, int64_t bytes)
      : folder_(scratch.path("folder")),
        out_(scratch.path("out")),
        shards_(scratch.path("shards")) {
    fill_folder_with(images, bytes, folder_);
    for (const ImageEntry& image : images_of_folder(folder_, {.classes = 0})) {
      images_.push_back((fs::path(folder_) / image.path).string());
    }
    fs::create_directory(shards_);
    packed_ = pack_images({.folder = folder_, .out = shards_}, files_);
  }
  const PackedShards& packed() const { return packed_; }

  double pack() {
    return us_of_filling([&] { pack_images({.folder = folder_, .out = out_}, files_); });
  }
  /// The shards, file to file and to the disk.
  double copy() {
    std::string piece(size_t{1} << 20, '\0');
    return us_of_filling([&] {
      for (const std::string& shard : shards_in(shards_, "")) {
        std::ifstream from(shard, std::ios::binary);
        OutputFile to(files_, (fs::path(out_) / fs::path(shard).filename()).string(),
                      FileSystem::Mode::kCreate);
        while (from.read(piece.data(), std::ssize(piece)) || from.gcount() > 0) {
          to.write(std::string_view(piece).substr(0, static_cast<size_t>(from.gcount())));
        }
        to.sync();
        to.close();
      }
    });
  }
  double read_folder(bool is_cold) {
    if (is_cold) std::ranges::for_each(images_, evict);
    const DataOrder order(num_epochs_++, std::ssize(images_), true);
    return us_of_reading([&] {
      uint64_t sum = 0;
      for (int64_t i = 0; i < std::ssize(images_); ++i) {
        sum += sum_of(MappedFile(images_[static_cast<size_t>(order.sample_at(i))], "").bytes());
      }
      return sum;
    });
  }
  double read_shards(bool is_cold) {
    if (is_cold) std::ranges::for_each(shards_in(shards_, ""), evict);
    std::vector<Shard> shards;
    std::vector<std::span<const std::byte>> images;
    for (const std::string& path : shards_in(shards_, "")) {
      shards.emplace_back(path, Labels::kIgnored);
    }
    for (const Shard& shard : shards) {
      for (const ShardSample& sample : shard.samples()) images.push_back(shard.image(sample));
    }
    const DataOrder order(num_epochs_++, std::ssize(images), true);
    return us_of_reading([&] {
      uint64_t sum = 0;
      for (int64_t i = 0; i < std::ssize(images); ++i) {
        sum += sum_of(images[static_cast<size_t>(order.sample_at(i))]);
      }
      return sum;
    });
  }

 private:
  double us_of_filling(const std::function<void()>& fill) {
    fs::create_directory(out_);
    const double us = us_of(fill);
    fs::remove_all(out_);
    return us;
  }
  /// `read` returns the sum of an epoch, which must be that of all others.
  double us_of_reading(const std::function<uint64_t()>& read) {
    uint64_t sum = 0;
    const double us = us_of([&] { sum = read(); });
    if (!sum_) sum_ = sum;
    if (*sum_ != sum) throw std::runtime_error("folder and shards hold other images");
    return us;
  }

  PosixFileSystem files_;
  std::string folder_, out_, shards_;
  std::vector<std::string> images_;
  PackedShards packed_;
  uint64_t num_epochs_ = 0;
  std::optional<uint64_t> sum_;
};

void measure_packing(const Arguments& arguments, const std::vector<std::string>& images,
                     const ScratchFolder& scratch, Report& out) {
  Packing packing(scratch, images, arguments.megabytes * 1'000'000);
  const auto bytes = static_cast<double>(packing.packed().bytes);
  out.note("packed", {{"bytes", packing.packed().bytes},
                      {"images", packing.packed().num_samples},
                      {"shards", packing.packed().num_shards}});
  const std::vector<TimedContender> contenders{
      {"pack", [&] { return packing.pack(); }},
      {"copy", [&] { return packing.copy(); }},
      {"read shards", [&] { return packing.read_shards(false); }},
      {"read folder", [&] { return packing.read_folder(false); }},
      {"read shards from disk", [&] { return packing.read_shards(true); }},
      {"read folder from disk", [&] { return packing.read_folder(true); }}};
  const int64_t rounds = std::min(arguments.rounds, kMostPackingRounds);
  const auto timings = take_turns(contenders, rounds, kWarmUpTurns);
  for (size_t i = 0; i < timings.size(); ++i) {
    // They come in pairs of ours and what it is compared with.
    const double over_ours = timings[i].median_us / timings[i / 2 * 2].median_us;
    const double mb_per_s = bytes / timings[i].median_us;
    fmt::print("{:21} {:7.0f} MB/s   time over ours {:5.2f}\n", timings[i].name, mb_per_s,
               over_ours);
    out.add({{"work", timings[i].name},
             {"median_us", timings[i].median_us},
             {"megabytes_per_s", mb_per_s},
             {"over_ours", over_ours}});
  }
}

void measure(const Arguments& arguments, Report& out) {
  set_up(1, out);
  std::vector<std::string> paths;
  for (const ImageEntry& image : images_of_folder(arguments.folder, {.classes = 0})) {
    paths.push_back((fs::path(arguments.folder) / image.path).string());
  }
  const ScratchFolder scratch(arguments.scratch);
  measure_images(arguments, paths, scratch, out);
  measure_packing(arguments, paths, scratch, out);
}

int run(int argc, char** argv) {
  Program program(
      "photograph",
      "JPEG files decoded, made into an evaluation view and into the two views of MoCo v3, one "
      "thread, and the same by torchvision; then copies of these files packed into shards beside "
      "a copy of as many bytes, and read in random order, without decoding, from shards and from "
      "the folder.",
      9);
  Arguments arguments;
  program.require("folder", arguments.folder, "of JPEG files, all of which make one turn");
  program.add("--python", arguments.python, "an interpreter that has torchvision");
  program.add("--megabytes", arguments.megabytes, "to pack");
  program.add("--scratch", arguments.scratch, "where a folder is made for packing");
  return program.run(argc, argv, [&](Report& out) {
    arguments.rounds = program.rounds();
    measure(arguments, out);
  });
}

const Benchmark kBenchmark("photograph", run);

}  // namespace
}  // namespace shoal::bench::photograph_bench
