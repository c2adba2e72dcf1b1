// The operations of image transforms on an image of 224 x 224, and by Pillow in Python.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "benchmarks/support/peer_process.h"
#include "benchmarks/support/program.h"
#include "runtime/data/transforms/pixel_operation.h"

namespace shoal::bench::image_transform_bench {
namespace {

constexpr int64_t kSide = 224;
constexpr int64_t kCallsPerRound = 20;

struct Case {
  PixelOperation operation;
  std::string operation_name;  ///< as the peer knows it
  double argument = 0.0;
  Interpolation interpolation = Interpolation::kNearest;
  std::string filter = {};  ///< name of the interpolation; "" where none is used

  std::string name() const {
    return filter.empty() ? operation_name : operation_name + " " + filter;
  }
};

std::vector<Case> cases() {
  using Op = PixelOperation;
  std::vector<Case> all{{Op::kAutoContrast, "auto_contrast"},
                        {Op::kEqualise, "equalise"},
                        {Op::kInvert, "invert"},
                        {Op::kGrey, "grey"},
                        {Op::kPosterise, "posterise", 4},
                        {Op::kSolarise, "solarise", 128},
                        {Op::kSolariseAdd, "solarise_add", 60},
                        {Op::kColour, "colour", 1.3},
                        {Op::kContrast, "contrast", 1.3},
                        {Op::kBrightness, "brightness", 1.3},
                        {Op::kSharpness, "sharpness", 1.3},
                        {Op::kHue, "hue", 0.07},
                        {Op::kBlur, "blur", 1.2}};
  const std::vector<Case> warps{{Op::kRotate, "rotate", 17.0},
                                {Op::kShearX, "shear_x", 0.2},
                                {Op::kTranslateX, "translate_x", 0.2}};
  for (const Case& warp : warps) {
    for (const auto& [interpolation, filter] : {std::pair{Interpolation::kNearest, "nearest"},
                                                {Interpolation::kBilinear, "bilinear"},
                                                {Interpolation::kBicubic, "bicubic"}}) {
      all.push_back({warp.operation, warp.operation_name, warp.argument, interpolation, filter});
    }
  }
  return all;
}

/// Smooth waves with some noise: every byte, and neighbours that are alike, as in photographs.
EditedImage waves() {
  EditedImage image{{3, kSide, kSide}, {}};
  for (int64_t c = 0; c < 3; ++c) {
    for (int64_t y = 0; y < kSide; ++y) {
      for (int64_t x = 0; x < kSide; ++x) {
        const double wave = std::sin(0.05 * static_cast<double>(x + 20 * c)) +
                            std::cos(0.031 * static_cast<double>(y - x * c));
        const auto noise = static_cast<double>((x * 7919 + y * 104729 + c * 31) % 17);
        image.pixel_CHW.push_back(static_cast<uint8_t>(120.0 + 58.0 * wave + noise));
      }
    }
  }
  return image;
}

/// The image for the peer, in a file that lives as long as this.
class ImageFile {
 public:
  explicit ImageFile(const EditedImage& image) {
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(image.pixel_CHW.data()), image.shape.bytes());
  }
  ImageFile(const ImageFile&) = delete;
  ~ImageFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / fmt::format("shoal_image_{}", getpid());
};

/// Microseconds of one operation; copying the image before each is not timed.
double our_us(const Case& one, const EditedImage& image, EditedImage& edited) {
  double total = 0.0;
  for (int64_t call = 0; call < kCallsPerRound; ++call) {
    edited.pixel_CHW = image.pixel_CHW;
    total += us_of([&] { apply(one.operation, one.argument, one.interpolation, edited); });
  }
  return total / static_cast<double>(kCallsPerRound);
}

void measure(const Case& one, int64_t rounds, PeerProcess* peer, Report& report) {
  const EditedImage image = waves();
  EditedImage edited = image;
  std::vector<TimedContender> contenders{{"ours", [&] { return our_us(one, image, edited); }}};
  if (peer != nullptr) {
    const nlohmann::json question{{"operation", one.operation_name},
                                  {"argument", one.argument},
                                  {"interpolation", one.filter.empty() ? "nearest" : one.filter},
                                  {"calls", kCallsPerRound}};
    contenders.push_back({"pillow", [=] { return peer->ask(question).get<double>(); }});
  }
  const std::vector<Timing> timings = take_turns(contenders, rounds, 2);
  const double us = timings[0].median_us;
  nlohmann::json row{{"operation", one.name()},
                     {"median_us", us},
                     {"megabytes_per_s", static_cast<double>(image.shape.bytes()) / us}};
  fmt::print("{:22} {:8.0f} MB/s", one.name(), static_cast<double>(image.shape.bytes()) / us);
  if (timings.size() > 1) {
    row["pillow_median_us"] = timings[1].median_us;
    row["pillow_over_ours"] = timings[1].median_us / us;
    fmt::print("   Pillow over ours {:6.2f}", timings[1].median_us / us);
  }
  fmt::print("\n");
  report.add(row);
}

int run(int argc, char** argv) {
  Program program("image_transform",
                  "Operations of image transforms on bytes of 3 x 224 x 224, one thread, and by "
                  "Pillow.",
                  15);
  std::string python = "python3";
  program.add("--python", python, "an interpreter that has Pillow");
  return program.run(argc, argv, [&](Report& report) {
    const ImageFile file(waves());
    const std::unique_ptr<PeerProcess> peer =
        PeerProcess::start(python, "pillow_operations.py", "Pillow (pip install pillow)");
    if (peer != nullptr) {
      report.note("pillow",
                  peer->ask({{"image", file.path()}, {"height", kSide}, {"width", kSide}}));
    }
    for (const Case& one : cases()) measure(one, program.rounds(), peer.get(), report);
  });
}

const Benchmark kBenchmark("image_transform", run);

}  // namespace
}  // namespace shoal::bench::image_transform_bench
