// A Nexus layer against the paper's pseudo-code in Python PyTorch, forward and backward.

#include <fmt/format.h>

#include <memory>
#include <stdexcept>

#include "benchmarks/moe_shapes.h"
#include "benchmarks/support/peer_process.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/set_up.h"
#include "moe/nexus/nexus_layer.h"
#include "parallel/comm/rank_grid.h"

// B images  N tokens of an image  D width
namespace shoal::bench::nexus_bench {
namespace {

struct NexusShape {
  std::string id;
  int64_t images, tokens, width, experts, memory, slots;
  int64_t keys = 1024, k = 4;
};

/// Stages 3 and 4 of a ConvNeXt-T at 224 pixels.
const std::vector<NexusShape>& nexus_shapes() {
  static const std::vector<NexusShape> shapes{{"stage3", 64, 196, 384, 8, 8, 16},
                                              {"stage4", 64, 49, 768, 12, 4, 3}};
  return shapes;
}

class Problem {
 public:
  Problem(const NexusShape& shape, NexusVariant variant)
      : grid_(make_rank_grid(make_self_communicator(), 1)) {
    NexusOptions options;
    options.experts.count = shape.experts;
    options.memory = {shape.memory, shape.keys, shape.k};
    options.slots = shape.slots;
    options.variant = variant;
    layer_ = std::make_shared<NexusLayer>(options, shape.width, "layer",
                                          BuildContext{&grid_, torch::kFloat32});
    const std::vector<Parameter> parameters = parameters_of(*layer_);
    initialise(parameters, 1);
    // The paper's first values would make every softmax one-hot, and denormal numbers slow.
    for (const Parameter& parameter : parameters) {
      if (variant == NexusVariant::kPaper && parameter.tensor.dim() == 3) {
        parameter.tensor.detach().mul_(1 / std::sqrt(static_cast<double>(shape.width)));
      }
    }
    step_.training = true;
    step_.sample_b = torch::arange(shape.images);
    step_.samples_in_step = step_.samples_in_micro = shape.images;
    x_ = normal({shape.images, shape.tokens, shape.width}, 1).set_requires_grad(true);
    upstream_ = normal(x_.sizes(), 2);
  }

  const torch::Tensor& x() const { return x_; }
  std::vector<Parameter> parameters() const { return parameters_of(*layer_); }

  void step() {
    layer_->forward(x_, step_).y_BRD.backward(upstream_);
    for (torch::Tensor parameter : layer_->parameters()) parameter.mutable_grad().reset();
    x_.mutable_grad().reset();
  }
  torch::Tensor forward() {
    const torch::NoGradGuard no_grad;
    return layer_->forward(x_, step_).y_BRD;
  }

 private:
  RankGrid grid_;
  std::shared_ptr<NexusLayer> layer_;
  StepContext step_;
  torch::Tensor x_, upstream_;
};

nlohmann::json question_of(const NexusShape& shape) {
  return {{"images", shape.images},
          {"tokens", shape.tokens},
          {"dim", shape.width},
          {"num_experts", shape.experts},
          {"num_memory_units", shape.memory},
          {"slots_per_unit", shape.slots},
          {"num_keys", shape.keys},
          {"topk", shape.k}};
}

std::vector<float> numbers_of(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.detach().contiguous();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

/// Both sides, given the same weights and tokens, make the same of them. Of a small layer: weights
/// travel as text. Throws if they do not.
double compare(PeerProcess& peer) {
  const NexusShape shape{"small", 3, 11, 24, 3, 2, 2, 40, 4};
  Problem paper(shape, NexusVariant::kPaper);
  nlohmann::json weights = nlohmann::json::array();
  for (const Parameter& parameter : paper.parameters()) {
    weights.push_back(numbers_of(parameter.tensor));
  }
  peer.ask(question_of(shape));
  const auto numbers =
      peer.ask({{"weights", weights}, {"x", numbers_of(paper.x())}}).get<std::vector<float>>();
  const torch::Tensor y = paper.forward().flatten(), expected = torch::tensor(numbers);
  const double error = ((y - expected).abs().max() / expected.abs().max()).item<double>();
  constexpr double kTolerance = 1e-5;  // some ten roundings of float32 in each of a few sums
  if (!(error < kTolerance)) {
    throw std::runtime_error(fmt::format("Python's layer makes other numbers, by {:.1e}", error));
  }
  return error;
}

void measure(const NexusShape& shape, int64_t rounds, PeerProcess* peer, Report& report) {
  Problem normalised(shape, NexusVariant::kNormalised), paper(shape, NexusVariant::kPaper);
  std::vector<TimedContender> contenders = {
      {"normalised", [&] { return us_of([&] { normalised.step(); }); }},
      {"paper", [&] { return us_of([&] { paper.step(); }); }},
      {"normalised_forward", [&] { return us_of([&] { normalised.forward(); }); }}};
  if (peer != nullptr) {
    peer->ask(question_of(shape));
    for (const char* form : {"step", "forward"}) {
      contenders.push_back(
          {std::string("python_") + form, [peer, form] { return peer->ask(form).get<double>(); }});
    }
  }
  const std::vector<Timing> timings = take_turns(contenders, rounds, 2);
  std::printf("%-7s layer %8.1f ms", shape.id.c_str(), timings[0].median_us * 1e-3);
  nlohmann::json row{{"shape", shape.id}};
  for (const Timing& timing : timings) row[timing.name + "_us"] = timing.median_us;
  if (peer != nullptr) {
    row["python_over_normalised"] = timings[3].median_us / timings[0].median_us;
    row["python_over_paper"] = timings[3].median_us / timings[1].median_us;
    row["python_over_normalised_forward"] = timings[4].median_us / timings[2].median_us;
    std::printf(
        "; Python's pseudo-code takes %.2f x as long (forward %.2f x, paper's variant %.2f x)",
        row["python_over_normalised"].get<double>(),
        row["python_over_normalised_forward"].get<double>(),
        row["python_over_paper"].get<double>());
  }
  std::printf("\n");
  std::fflush(stdout);
  report.add(row);
}

int run(int argc, char** argv) {
  Program program("nexus",
                  "A Nexus layer against the paper's pseudo-code in Python PyTorch; forward and "
                  "backward, equal threads.",
                  7);
  std::string python = "python3";
  int64_t threads = 1;
  program.add("--python", python, "an interpreter that has PyTorch 2.11");
  program.add("--threads", threads, "threads of both");
  return program.run(argc, argv, [&](Report& report) {
    set_up(threads, report);
    const std::unique_ptr<PeerProcess> peer = PeerProcess::start(python, "nexus.py");
    if (peer != nullptr) {
      peer->ask({{"threads", threads}});
      report.note("relative_difference_of_outputs", compare(*peer));
    }
    for (const NexusShape& shape : nexus_shapes()) {
      measure(shape, program.rounds(), peer.get(), report);
    }
  });
}

const Benchmark kBenchmark("nexus", run);

}  // namespace
}  // namespace shoal::bench::nexus_bench
