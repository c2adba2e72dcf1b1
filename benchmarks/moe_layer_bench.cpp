// A MoE layer against the same layer in Python PyTorch and with transformers' experts.
#include <fmt/format.h>

#include "benchmarks/device.h"
#include "benchmarks/moe_layer_call.h"
#include "benchmarks/support/peer_process.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/set_up.h"
#include "benchmarks/support/tensor_file.h"

namespace shoal::bench::moe_layer_bench {
namespace {

/// The channel and the two token layers of Sparse-MLP's base model, 8 images, for CPUs.
const std::vector<MoeShape> kShapes{{"s1", 4, 2, 3136, 384, 1536, 392},
                                    {"s2", 8, 1, 3072, 392, 768, 384},
                                    {"s3", 16, 1, 3072, 392, 768, 384}};

struct ExpertKind {
  const char* name;
  const char* keys;
};

const ExpertKind kGated{"gated", "kind: gated"};
const std::vector<ExpertKind> kKinds{
    {"plain", "kind: plain"}, {"plain_no_bias", "kind: plain, bias: false"}, kGated};

/// What is compared, and where it is computed.
struct Setting {
  torch::TensorOptions tensors;
  int64_t calls = 1;  ///< of each contender's turn
  int64_t rounds = 1;

  /// Relative error of sums of up to some thousand products, added in another order, over all
  /// numbers of a tensor together. Products of bfloat16 are rounded to 8 bits after each step.
  double tolerance() const { return tensors.dtype() == torch::kBFloat16 ? 2e-2 : 1e-5; }
};

/// Gives the peer the layer with its output and gradients; what the peer has of it.
nlohmann::json hand_over(MoeLayerCall& layer, const MoeShape& shape, const Setting& setting,
                         PeerProcess& peer) {
  const auto rows_of = [&](const torch::Tensor& tensor) {
    return tensor.reshape({shape.tokens, shape.width});
  };
  TensorFile file;
  file.add("x", rows_of(layer.x()));
  file.add("upstream", rows_of(layer.upstream()));
  file.add("y", rows_of(layer.step()));
  file.add("grad x", rows_of(layer.x().grad()));
  for (const Parameter& parameter : layer.parameters()) {
    file.add(parameter.name, parameter.tensor);
    file.add("grad " + parameter.name, parameter.tensor.grad());
  }
  layer.clear();
  nlohmann::json question = file.finish();
  question["k"] = shape.k;
  question["device"] = setting.tensors.device().str();
  question["calls"] = setting.calls;
  return peer.ask(question);
}

/// Throws unless this form's output and gradients are the layer's. The largest of the tensors'
/// differences, each relative to the tensor, by the norm of all numbers.
double compare(PeerProcess& peer, const std::string& form, double tolerance) {
  double most = 0;
  const nlohmann::json differences = peer.ask({{"compare", form}});
  for (const auto& [tensor, value] : differences.items()) {
    const auto difference = value.get<double>();
    if (!(difference < tolerance)) {
      throw std::runtime_error(
          fmt::format("{} makes other numbers of {}, by {:.1e}", form, tensor, difference));
    }
    most = std::max(most, difference);
  }
  return most;
}

/// Forms that take so long that one turn tells enough.
bool is_slow(const std::string& form) { return form == "transformers_batched_mm"; }

void add_rows(const std::vector<Timing>& timings, const nlohmann::json& differences,
              nlohmann::json row, Report& report) {
  const double own_us = timings[0].median_us;
  for (const Timing& timing : timings) {
    row["contender"] = timing.name;
    row["median_us"] = timing.median_us;
    row["min_us"] = timing.min_us;
    row["rounds"] = timing.rounds;
    row["over_shoal"] = timing.median_us / own_us;
    if (differences.contains(timing.name)) row["difference"] = differences[timing.name];
    if (timing.name != "shoal") {
      std::printf("  %s %.3f", timing.name.c_str(), timing.median_us / own_us);
    }
    report.add(row);
  }
}

void measure(const MoeShape& shape, const ExpertKind& kind, const Setting& setting,
             PeerProcess* peer, Report& report) {
  const c10::Device device = setting.tensors.device();
  RankGrid grid = make_rank_grid(make_self_communicator(), 1);
  grid.device = device;
  MoeLayerCall layer(shape, fmt::format("router: {{name: top_k, k: {}, noise: none}}", shape.k),
                     grid, kind.keys, setting.tensors);
  std::vector<TimedContender> contenders{
      {"shoal", [&] { return us_of_calls([&] { layer.call(); }, setting.calls, device); }}};
  std::vector<std::string> slow;
  nlohmann::json differences, left_out;
  if (peer != nullptr) {
    const nlohmann::json offer = hand_over(layer, shape, setting, *peer);
    left_out = offer["left_out"];
    for (const std::string form : offer["forms"]) {
      differences[form] = compare(*peer, form, setting.tolerance());
      if (is_slow(form)) {
        slow.push_back(form);
      } else {
        contenders.push_back({form, [peer, form] { return peer->ask(form).get<double>(); }});
      }
    }
  }
  std::vector<Timing> timings = take_turns(contenders, setting.rounds, 2);
  for (const std::string& form : slow) {
    timings.push_back(summarise(form, {peer->ask(form).get<double>()}));
  }
  std::printf("%s %-13s shoal %7.1f ms; over it:", shape.id.c_str(), kind.name,
              timings[0].median_us * 1e-3);
  add_rows(timings, differences, {{"shape", shape.id}, {"experts", kind.name}}, report);
  for (const auto& [form, reason] : left_out.items()) {
    std::printf("  %s left out: %s", form.c_str(), reason.get<std::string>().c_str());
    report.add(
        {{"shape", shape.id}, {"experts", kind.name}, {"contender", form}, {"left_out", reason}});
  }
  std::printf("\n");
  std::fflush(stdout);
}

/// The peer with its versions noted; nullptr without a Python that has PyTorch.
std::unique_ptr<PeerProcess> start_peer(const std::string& python, int64_t threads,
                                        Report& report) {
  std::unique_ptr<PeerProcess> peer = PeerProcess::start(python, "moe_layer.py");
  if (peer == nullptr) return nullptr;
  peer->ask({{"threads", threads}});
  const nlohmann::json versions = peer->ask("versions");
  if (versions.contains("absent")) {
    std::printf(
        "peers/moe_layer.py: without transformers, since '%s' says: %s (pip install "
        "transformers)\n",
        python.c_str(), versions["absent"].get<std::string>().c_str());
  }
  report.note("python", versions);
  return peer;
}

torch::Dtype dtype_of(const std::string& name) {
  if (name == "float32") return torch::kFloat32;
  if (name == "bfloat16") return torch::kBFloat16;
  throw std::invalid_argument("--dtype: '" + name + "', expected float32 or bfloat16");
}

int run(int argc, char** argv) {
  Program program("moe_layer",
                  "A MoE layer (router, rows to experts, experts, sums) beside the same in Python "
                  "PyTorch and with transformers' experts; forward and backward, equal threads.",
                  9);
  std::string shape_id, python = "python3", device_name = "cpu", dtype = "float32";
  int64_t threads = 1;
  program.add("--shape", shape_id, "only this shape: s1 to s3, on a GPU S1 to S3, M1, Q1, N1, D1");
  program.add("--device", device_name, "cpu or cuda");
  program.add("--dtype", dtype, "float32 or bfloat16, of tokens and experts");
  program.add("--python", python, "an interpreter that has PyTorch 2.11 and transformers 5");
  program.add("--threads", threads, "threads of both");
  return program.run(argc, argv, [&](Report& report) {
    const c10::Device device = use_device(device_name);
    const Setting setting{torch::TensorOptions(device).dtype(dtype_of(dtype)),
                          calls_per_turn(device), program.rounds()};
    set_up(threads, report, dtype);
    report.note("device", device.str());
    const std::unique_ptr<PeerProcess> peer = start_peer(python, threads, report);
    const std::vector<MoeShape>& shapes = device.is_cpu() ? kShapes : gpu_shapes();
    for (const MoeShape& shape : chosen_shapes(shape_id, shapes)) {
      for (const ExpertKind& kind : shape.gated ? std::vector{kGated} : kKinds) {
        measure(shape, kind, setting, peer.get(), report);
      }
    }
  });
}

const Benchmark kBenchmark("moe_layer", run);

}  // namespace
}  // namespace shoal::bench::moe_layer_bench
