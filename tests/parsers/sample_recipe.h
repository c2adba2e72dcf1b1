#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/options/registry.h"

/// A recipe without torch that uses every kind of field, for the tests and the fuzzer.
namespace shoal::sample {

enum class Order { kSlotMajor, kBatchPriority, kPosition };

class Optimizer {
 public:
  struct Context {
    double factor = 1.0;
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "optimizer";
  virtual ~Optimizer() = default;
  virtual double rate() const = 0;
};

class Sgd : public Optimizer {
 public:
  struct Options {
    double lr = 0.1;
    double momentum = 0.9;
    static constexpr auto fields() {
      return std::tuple{field("lr", &Options::lr, "learning rate", above(0.0)),
                        field("momentum", &Options::momentum, "", in_range(0.0, below(1.0)))};
    }
  };
  Sgd(const Options& options, const Context& context) : rate_(options.lr * context.factor) {}
  double rate() const override { return rate_; }

 private:
  double rate_;
};

class Lamb : public Optimizer {
 public:
  struct Options {
    double lr = 0.002;
    double beta1 = 0.9;
    double beta2 = 0.999;
    static constexpr auto fields() {
      return std::tuple{field("lr", &Options::lr, "learning rate", above(0.0)),
                        field("beta1", &Options::beta1, "", in_range(0.0, below(1.0))),
                        field("beta2", &Options::beta2, "", in_range(0.0, below(1.0)))};
    }
    void validate(Problems& problems) const {
      if (beta2 < beta1) problems.add("beta2", "must not be below beta1");
    }
  };
  explicit Lamb(const Options& options) : rate_(options.lr) {}
  double rate() const override { return rate_; }

 private:
  double rate_;
};

class Loss {
 public:
  struct Context {};
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "balance loss";
  virtual ~Loss() = default;
};

class ImportanceLoss : public Loss {
 public:
  struct Options {
    double weight = 0.01;
    Order scope = Order::kSlotMajor;
    static constexpr auto fields() {
      return std::tuple{field("weight", &Options::weight, "", at_least(0.0)),
                        field("scope", &Options::scope, "")};
    }
  };
  explicit ImportanceLoss(const Options&) {}
};

class Backbone {
 public:
  struct Context {};
  static constexpr std::string_view kNameKey = "backbone";
  static constexpr std::string_view kNoun = "backbone";
  virtual ~Backbone() = default;
};

class Mixer : public Backbone {
 public:
  struct Router {
    int64_t top_k = 1;
    double keep_fraction = 0.9;
    Order order = Order::kSlotMajor;
    bool is_noisy = false;
    static constexpr auto fields() {
      return std::tuple{field("top_k", &Router::top_k, "units per kept token", at_least(1)),
                        field("keep_fraction", &Router::keep_fraction, "share of tokens routed",
                              in_range(above(0.0), 1.0)),
                        field("order", &Router::order, "who is kept first"),
                        field("noisy", &Router::is_noisy, "noise while training")};
    }
  };
  struct Options {
    int64_t width = 96;
    int64_t num_experts = 4;
    std::optional<int64_t> hidden;
    Router router;
    std::vector<Choice<Loss>> losses;
    static constexpr auto fields() {
      return std::tuple{field("width", &Options::width, "channels", in_range(1, 8192)),
                        field("num_experts", &Options::num_experts, "", at_least(1)),
                        field("hidden", &Options::hidden, "", at_least(1), unset_word("auto")),
                        field("router", &Options::router, ""),
                        field("losses", &Options::losses, "balance losses")};
    }
    void validate(Problems& problems) const {
      if (router.top_k > num_experts) {
        problems.add("router.top_k", "must not be above num_experts");
      }
    }
  };
  explicit Mixer(const Options&) {}
};

struct Train {
  Duration duration;
  int64_t batch = 0;
  double clip_norm = 1.0;
  Duration log_every = Duration::steps(50);
  static constexpr auto fields() {
    return std::tuple{
        required("duration", &Train::duration, "length of the run",
                 accepts(DurationUnit::kStep, DurationUnit::kEpoch, DurationUnit::kToken),
                 above(0.0)),
        required("batch", &Train::batch, "samples per step", at_least(1), unit("samples")),
        field("clip_norm", &Train::clip_norm, "largest gradient norm", above(0.0)),
        field("log_every", &Train::log_every, "")};
  }
};

struct Data {
  std::string path;
  std::vector<std::string> files{"a.bin"};
  bool flip = true;
  static constexpr auto fields() {
    return std::tuple{field("path", &Data::path, "folder of the files", file_path()),
                      field("files", &Data::files, "file names", not_empty(), at_least_one()),
                      field("flip", &Data::flip, "mirror half of the images")};
  }
};

struct Model {
  Choice<Backbone> backbone;
  std::optional<std::string> init_from;
  static constexpr auto fields() {
    return std::tuple{inlined(&Model::backbone),
                      field("init_from", &Model::init_from, "checkpoint to start from")};
  }
};

struct Recipe {
  Data data;
  Model model;
  Choice<Optimizer> optimizer{"lamb"};
  Train train;
  int64_t seed = 1;
  static constexpr auto fields() {
    return std::tuple{field("data", &Recipe::data, ""), field("model", &Recipe::model, ""),
                      field("optimizer", &Recipe::optimizer, "how weights move"),
                      field("train", &Recipe::train, ""),
                      field("seed", &Recipe::seed, "of all randomness")};
  }
};

}  // namespace shoal::sample

template <>
struct shoal::EnumNames<shoal::sample::Order> {
  static constexpr std::array names{
      std::pair{shoal::sample::Order::kSlotMajor, "slot_major"},
      std::pair{shoal::sample::Order::kBatchPriority, "batch_priority"},
      std::pair{shoal::sample::Order::kPosition, "position"}};
};

namespace shoal::sample {

// One set of registrations for a program, however many files include this header.
inline const Registration<Optimizer, Sgd> registered_sgd{"sgd", "plain steps"};
inline const Registration<Optimizer, Lamb> registered_lamb{"lamb", "one trust ratio a matrix"};
inline const Registration<Loss, ImportanceLoss> registered_importance{"importance", "CV squared"};
inline const Registration<Backbone, Mixer> registered_mixer{"mixer", "MLP-Mixer"};

}  // namespace shoal::sample
