#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/data_source.h"
#include "runtime/data/drawn_samples.h"
#include "runtime/random/philox.h"

namespace shoal {
namespace {

struct PathfinderOptions {
  int64_t image_size = 32;
  int64_t length = 6;
  int64_t distractors = 2;
  int64_t distractor_length = 3;
  double dash = 2.0;
  double gap = 1.0;
  double turn = 40.0;
  int64_t seed = 0;
  DrawnSplit<160000> train;
  DrawnSplit<20000> valid;
  ImageOptions images;

  static constexpr auto fields() {
    return std::tuple{
        field("image_size", &PathfinderOptions::image_size, "height and width", unit("pixels"),
              in_range(8, 1024)),
        field("length", &PathfinderOptions::length, "dashes of the long curves", in_range(2, 1000)),
        field("distractors", &PathfinderOptions::distractors, "short curves", in_range(0, 1000)),
        field("distractor_length", &PathfinderOptions::distractor_length,
              "dashes of the short curves", in_range(1, 1000)),
        field("dash", &PathfinderOptions::dash, "length of a dash; its width is half of this",
              unit("pixels"), in_range(1, 100)),
        field("gap", &PathfinderOptions::gap, "between dashes", unit("pixels"),
              in_range(above(0), 100)),
        field("turn", &PathfinderOptions::turn, "largest angle between a dash and the next",
              unit("degrees"), in_range(0, 90)),
        field("seed", &PathfinderOptions::seed, "seed of the images, independent of run.seed",
              at_least(0)),
        field("train", &PathfinderOptions::train, "what is trained on"),
        field("valid", &PathfinderOptions::valid, "what is evaluated on, from a stream of its own",
              changes_scores()),
        inlined(&PathfinderOptions::images)};
  }
  /// Refuses curves that rarely fit into the image, or too many of them to place.
  void validate(Problems& problems) const;
};

/// A place, or a way from one to another; pixels, y down.
struct Point {
  double x = 0.0, y = 0.0;
};
Point operator+(Point a, Point b) { return {a.x + b.x, a.y + b.y}; }
Point operator*(double factor, Point a) { return {factor * a.x, factor * a.y}; }
double square_of(Point a) { return a.x * a.x + a.y * a.y; }
double square_distance(Point a, Point b) { return square_of(a + -1.0 * b); }

struct Dash {
  Point begin, end;
};
using Curve = std::vector<Dash>;

struct CurveScene {
  std::vector<Curve> curves;
  Point dot[2];
};

/// One try to lay out a scene. Uses +, ×, /, fma and square roots only: equal on all machines.
class CurveLayout {
 public:
  /// `budget`: comparisons of places left, counted down; below 0 nothing finds room.
  CurveLayout(const PathfinderOptions& options, const Stream& stream, uint64_t id, int64_t& budget)
      : options_(options), draws_(stream), id_(id), budget_(budget) {
    const auto half = philox::sincos_of_quarters(0, options.turn / 180.0);
    half_turn_ = half.sin / half.cos;
  }

  /// Draws a scene; nullopt if the curves did not find room.
  std::optional<CurveScene> draw(bool is_connected) {
    const std::optional<Curve> way = draw_anywhere(options_.length);
    if (!way) return std::nullopt;
    // Both labels' curves have to find room, or where the dots lie would hint at the label.
    const std::optional<CurveScene> apart = complete(*way, false);
    if (!apart) return std::nullopt;
    const std::optional<CurveScene> connected = complete(*way, true);
    return !connected || is_connected ? connected : apart;
  }

 private:
  static constexpr int kTries = 40;

  /// A scene whose dots lie at the ends of `way`, which is itself drawn if it connects them.
  std::optional<CurveScene> complete(const Curve& way, bool is_connected) {
    const Point first = way.front().begin, last = way.back().end;
    scene_ = {{}, {first, last}};
    bool fits = true;
    if (is_connected) {
      scene_.curves.push_back(way);
      fits = add(draw_anywhere(options_.length));
    } else {
      kept_clear_ = {last};
      fits = add(draw_from(first, options_.length));
      kept_clear_ = {};
      fits = fits && add(draw_from(last, options_.length));
    }
    for (int64_t i = 0; fits && i < options_.distractors; ++i) {
      fits = add(draw_anywhere(options_.distractor_length));
    }
    if (!fits) return std::nullopt;
    return std::move(scene_);
  }

  double uniform(double from, double to) {
    return from + (to - from) * draws_.uniform(id_, used_++);
  }

  bool add(const std::optional<Curve>& curve) {
    if (curve) scene_.curves.push_back(*curve);
    return curve.has_value();
  }

  std::optional<Curve> draw_anywhere(int64_t dashes) {
    for (int i = 0; i < kTries; ++i) {
      const auto side = static_cast<double>(options_.image_size);
      const double x = uniform(margin(), side - margin());
      const Point begin{x, uniform(margin(), side - margin())};
      if (auto curve = draw_once(begin, dashes)) return curve;
    }
    return std::nullopt;
  }

  std::optional<Curve> draw_from(Point begin, int64_t dashes) {
    for (int i = 0; i < kTries; ++i) {
      if (auto curve = draw_once(begin, dashes)) return curve;
    }
    return std::nullopt;
  }

  std::optional<Curve> draw_once(Point begin, int64_t dashes) {
    Point direction = draw_direction();
    Curve curve;
    while (std::ssize(curve) < dashes) {
      const Dash dash{begin, begin + options_.dash * direction};
      if (!has_room(dash.begin, curve) || !has_room(dash.end, curve)) return std::nullopt;
      curve.push_back(dash);
      begin = dash.end + options_.gap * direction;
      direction = turned(direction, uniform(-half_turn_, half_turn_));
    }
    return curve;
  }

  Point draw_direction() {
    while (true) {
      const double x = uniform(-1.0, 1.0);
      const Point way{x, uniform(-1.0, 1.0)};
      const double square = square_of(way);
      if (square > 0.01 && square < 1.0) return (1.0 / std::sqrt(square)) * way;
    }
  }

  /// By twice the angle whose tangent is given.
  static Point turned(Point way, double tangent) {
    const double scale = 1.0 / (1.0 + tangent * tangent);
    const double cos = (1.0 - tangent * tangent) * scale, sin = 2.0 * tangent * scale;
    return {way.x * cos - way.y * sin, way.x * sin + way.y * cos};
  }

  double margin() const { return 0.75 * options_.dash; }  // a dot's radius

  /// True inside the image, clear of other curves and of all but the last two dashes of its own.
  bool has_room(Point point, const Curve& own) {
    if (--budget_ < 0) return false;
    const double side = static_cast<double>(options_.image_size),
                 period = options_.dash + options_.gap;
    const double clear = 1.25 * 1.25 * period * period;
    if (std::min(point.x, point.y) < margin() || std::max(point.x, point.y) > side - margin()) {
      return false;
    }
    const auto is_near = [&](const Dash& dash) {
      --budget_;
      return square_distance(point, dash.begin) < clear || square_distance(point, dash.end) < clear;
    };
    const auto is_near_curve = [&](const Curve& curve) {
      return std::ranges::any_of(curve, is_near);
    };
    const auto is_near_point = [&](Point other) { return square_distance(point, other) < clear; };
    const size_t far = own.size() < 2 ? 0 : own.size() - 2;
    return std::ranges::none_of(scene_.curves, is_near_curve) &&
           std::ranges::none_of(kept_clear_, is_near_point) &&
           std::none_of(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(far), is_near);
  }

  const PathfinderOptions& options_;
  const ScalarDraws draws_;
  uint64_t id_;
  int64_t& budget_;
  double half_turn_ = 0.0;
  uint32_t used_ = 0;
  CurveScene scene_;
  std::vector<Point> kept_clear_;
};

/// Comparisons of places: what a recipe may need per image (milliseconds), and a far higher limit.
constexpr int64_t kUsualBudget = int64_t{1} << 20, kLargestBudget = int64_t{1} << 30;

/// Draws scenes until the curves of one find room; nullopt if none did within `budget` comparisons.
std::optional<CurveScene> draw_curves(const PathfinderOptions& options, Split split, int64_t index,
                                      int64_t budget) {
  for (uint64_t attempt = 0; budget > 0; ++attempt) {
    CurveLayout layout(options, drawn_stream(options.seed, "pathfinder", split, attempt),
                       static_cast<uint64_t>(index), budget);
    if (std::optional<CurveScene> scene = layout.draw(index % 2 == 1)) return scene;
  }
  return std::nullopt;
}

void PathfinderOptions::validate(Problems& problems) const {
  if (draw_curves(*this, Split::kTrain, 0, kUsualBudget)) return;
  problems.add("image_size",
               "the curves hardly find room, or are too many; raise it, or lower length, "
               "distractors, distractor_length, dash or gap");
}

/// White on black, edges smoothed over a pixel.
class GreyCanvas {
 public:
  explicit GreyCanvas(int64_t side) : side_(side), pixel_(static_cast<size_t>(side * side)) {}

  /// All within `radius` of the line from a to b.
  void line(Point a, Point b, double radius) {
    const double reach = radius + 1.0;
    const auto [left, right] = range(std::min(a.x, b.x) - reach, std::max(a.x, b.x) + reach);
    const auto [top, bottom] = range(std::min(a.y, b.y) - reach, std::max(a.y, b.y) + reach);
    const Point way = b + -1.0 * a;
    const double square = square_of(way);
    for (int64_t row = top; row < bottom; ++row) {
      for (int64_t column = left; column < right; ++column) {
        const Point point{static_cast<double>(column) + 0.5, static_cast<double>(row) + 0.5};
        const Point to = point + -1.0 * a;
        const double along =
            square > 0.0 ? std::clamp((to.x * way.x + to.y * way.y) / square, 0.0, 1.0) : 0.0;
        const double distance = std::sqrt(square_of(to + -along * way));
        const double covered = std::clamp(radius + 0.5 - distance, 0.0, 1.0);
        uint8_t& value = pixel_[static_cast<size_t>(row * side_ + column)];
        value = std::max(value, static_cast<uint8_t>(covered * 255.0 + 0.5));
      }
    }
  }
  std::vector<uint8_t> take() { return std::move(pixel_); }

 private:
  std::pair<int64_t, int64_t> range(double from, double to) const {
    const auto side = static_cast<double>(side_);
    return {static_cast<int64_t>(std::clamp(from, 0.0, side)),
            static_cast<int64_t>(std::clamp(std::ceil(to), 0.0, side))};
  }

  int64_t side_;
  std::vector<uint8_t> pixel_;
};

class PathfinderSet final : public SampleSet {
 public:
  PathfinderSet(const PathfinderOptions& options, Split split)
      : options_(options), split_(split), size_(samples_of(options, split)) {}

  int64_t size() const override { return size_; }

  Sample read(int64_t index, int64_t /*epoch*/) const override {
    const std::optional<CurveScene> scene = draw_curves(options_, split_, index, kLargestBudget);
    if (!scene) {
      throw DataError("data: an image's curves found no room",
                      "raise data.image_size, or lower data.length or data.distractors");
    }
    GreyCanvas canvas(options_.image_size);
    for (const Curve& curve : scene->curves) {
      for (const Dash& dash : curve) {
        // A quarter of a dash at either end is its round cap.
        const Point quarter = 0.25 * (dash.end + -1.0 * dash.begin);
        canvas.line(dash.begin + quarter, dash.end + -1.0 * quarter, 0.25 * options_.dash);
      }
    }
    for (const Point& dot : scene->dot) canvas.line(dot, dot, 0.75 * options_.dash);
    Sample sample;
    sample.label = index % 2;
    sample.shape = {1, options_.image_size, options_.image_size};
    sample.pixel_CHW = canvas.take();
    return sample;
  }

 private:
  PathfinderOptions options_;
  Split split_;
  int64_t size_;
};

/// Data source `pathfinder`, Pathfinder-like images with one grey channel: two long dashed curves,
/// two dots and shorter distractor curves. Label 1: the dots are the two ends of one long curve; 0:
/// they are ends of different ones. Both labels are equally frequent, with equal numbers and
/// lengths of curves and equally distributed dots. Accuracies do not compare with those on the
/// files of Linsley et al. 2018 or the Long Range Arena, whose curves differ.
class PathfinderSource : public DrawnSource<PathfinderOptions, PathfinderSet> {
 public:
  using DrawnSource::DrawnSource;

  static constexpr Sketch kSketch{
      .image = ImageShape{1, 32, 32},
      .lines =
          "  image_size: 32\n"
          "  length: 6                      # dashes of the long curves\n"
          "  distractors: 2                 # short curves\n"
          "  train: {samples: 8192}         # drawn images; no files are needed\n"
          "  valid: {samples: 1024}\n"};  ///< starter recipe of `shoal new`

  DataShape shape() const override {
    return {.source = "pathfinder",
            .image = ImageShape{1, options_.image_size, options_.image_size},
            .has_unit_pixels = keeps_unit_pixels(options_.images),
            .classes = 2};
  }
  std::optional<ImageTransform> image_transform() const override {
    // Measured with the default options.
    const ChannelStats measured{{0.047}, {0.168}};
    return shoal::image_transform(*shape().image, options_.images, measured);
  }
};

const Registration<DataSource, PathfinderSource> registered_pathfinder_source{
    "pathfinder", "Pathfinder-like images: are two dots the ends of one curve? Needs no files"};

}  // namespace
}  // namespace shoal
