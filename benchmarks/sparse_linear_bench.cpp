// Sparse linear layers by sparse kernels beside dense products with the same weights: from which
// density on the dense ones are faster.
#include <ATen/ops/mm.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/device.h"
#include "benchmarks/moe_shapes.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/set_up.h"
#include "runtime/products/sgemm.h"
#include "sparse/kernels/sparse_layout.h"
#include "sparse/patterns/diagonal.h"

// T tokens  m outputs  n inputs
namespace shoal::bench::sparse_linear_bench {
namespace {

struct Shape {
  int64_t outputs, inputs;
};

const std::vector<Shape> kShapes{{768, 768}, {1024, 1024}, {3072, 768}};
const std::vector<double> kDensities{0.02, 0.05, 0.1, 0.12, 0.2, 0.3, 0.4, 0.45, 0.6};
const std::vector<std::string> kLayouts{"csr", "constant_fan_in", "diagonal", "block_16",
                                        "block_32"};
/// True for densities also measured with inputs in a random order and beside LibTorch's CSR.
bool is_looked_at_closely(double density) { return density == 0.05 || density == 0.2; }

/// Steps between two updates of the masks, over which the new layout is shared out.
constexpr double kStepsOfMask = 100;

torch::Tensor random_mask(const Shape& shape, double density) {
  return normal({shape.outputs, shape.inputs}, 11)
             .argsort(int64_t{-1})
             .argsort(int64_t{-1})
             .to(torch::kFloat32) < density * static_cast<double>(shape.inputs);
}

torch::Tensor make_mask(const std::string& layout, const Shape& shape, double density) {
  const int64_t m = shape.outputs, n = shape.inputs;
  if (layout == "constant_fan_in") return random_mask(shape, density);
  if (layout == "csr") {  // as many weights, rows uneven
    const torch::Tensor score = normal({m * n}, 12);
    torch::Tensor mask = torch::zeros({m * n}, torch::kBool);
    mask.index_fill_(0, score.argsort().narrow(0, 0, static_cast<int64_t>(density * m * n)), true);
    return mask.view({m, n});
  }
  if (layout == "diagonal") {
    const Diagonals diagonals{m, n};
    const auto count = static_cast<int64_t>(density * diagonals.count());
    const torch::Tensor offsets = normal({diagonals.count()}, 13).argsort().narrow(0, 0, count);
    torch::Tensor mask = torch::zeros({m * n}, torch::kBool);
    mask.index_fill_(0, diagonals.places(torch::kCPU).index_select(0, offsets).view({-1}), true);
    return mask.view({m, n});
  }
  const int64_t size = layout == "block_16" ? 16 : 32;
  return random_mask({m / size, n / size}, density)
      .repeat_interleave(size, 0)
      .repeat_interleave(size, 1);
}

SparseLayoutPtr make_layout(const std::string& layout, const torch::Tensor& mask,
                            const SparseOrder& order = {}) {
  if (layout == "diagonal") return make_diagonal_layout(mask, order);
  if (layout == "block_16") return make_block_layout(mask, 16, order);
  if (layout == "block_32") return make_block_layout(mask, 32, order);
  return make_csr_layout(mask, order);
}

using Sgemm = decltype(&sgemm_);

Sgemm libtorch_sgemm() {
  void* library = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  auto* found = library == nullptr ? nullptr : dlsym(library, "sgemm_");
  if (found == nullptr) throw std::runtime_error("LibTorch exports no sgemm_");
  return reinterpret_cast<Sgemm>(found);
}

/// The dense layer's three products, without its bias, by one of the libraries; null: by LibTorch's
/// operators, as on a GPU.
struct Dense {
  torch::Tensor x, weight, dy;
  torch::Tensor y = torch::empty_like(dy), dx = torch::empty_like(x),
                dw = torch::empty_like(weight);

  /// A factor, or of "T" the transpose of its memory.
  struct Factor {
    const torch::Tensor& memory;
    char op;
  };
  /// c [m, n] = a [m, k] b [k, n].
  static void multiply(Sgemm sgemm, const Factor& a, const Factor& b, torch::Tensor& c) {
    if (sgemm == nullptr) {
      at::mm_out(c, a.op == 'N' ? a.memory : a.memory.t(), b.op == 'N' ? b.memory : b.memory.t());
      return;
    }
    const auto m = static_cast<int>(c.size(0)), n = static_cast<int>(c.size(1));
    const auto k = static_cast<int>(a.memory.size(a.op == 'N' ? 1 : 0));
    const auto a_stride = static_cast<int>(a.memory.size(1));
    const auto b_stride = static_cast<int>(b.memory.size(1));
    const float one = 1, zero = 0;
    sgemm(&b.op, &a.op, &n, &m, &k, &one, b.memory.const_data_ptr<float>(), &b_stride,
          a.memory.const_data_ptr<float>(), &a_stride, &zero, c.data_ptr<float>(), &n);
  }
  void forward(Sgemm sgemm) { multiply(sgemm, {x, 'N'}, {weight, 'T'}, y); }
  void backward_x(Sgemm sgemm) { multiply(sgemm, {dy, 'N'}, {weight, 'N'}, dx); }
  void backward_weight(Sgemm sgemm) { multiply(sgemm, {dy, 'T'}, {x, 'N'}, dw); }
};

/// Overwrites the caches, so that what comes next reads its weights from memory.
void evict() {
  static torch::Tensor memory = torch::zeros({int64_t{24} << 20});
  memory.add_(1);
}

struct Options {
  int64_t rounds;
  bool is_cold;  ///< of each call the weights come from memory
  c10::Device device;
};

/// Times of all contenders, which take turns, by their names.
std::map<std::string, double> times(const std::vector<Contender>& contenders,
                                    const Options& options) {
  std::vector<TimedContender> timed;
  for (const Contender& contender : contenders) {
    timed.push_back({contender.name, [&contender, &options] {
                       if (options.is_cold) evict();
                       return us_of_calls(contender.call, calls_per_turn(options.device),
                                          options.device);
                     }});
  }
  std::map<std::string, double> result;
  for (const Timing& timing : take_turns(timed, options.rounds, 2)) {
    result[timing.name] = timing.median_us;
  }
  return result;
}

/// One density of a layout, and what it computes.
struct Sparse {
  double density;
  SparseLayoutPtr layout, permuted;
  double layout_us = 0;
  torch::Tensor weight, values, csr;

  Sparse(const std::string& name, const Shape& shape, double density, const torch::Tensor& dense)
      : density(density) {
    const c10::Device device = dense.device();
    const torch::Tensor mask = make_mask(name, shape, density).to(device);
    make_layout(name, mask);  // what is loaded at first use
    layout_us = us_of_calls([&] { layout = make_layout(name, mask); }, 1, device);
    permuted = make_layout(name, mask, {normal({shape.inputs}, 14).argsort(), {}});
    weight = dense * mask;
    values = layout->pack(weight);
    csr = weight.to_sparse_csr();
  }
  void check(const torch::Tensor& x, const torch::Tensor& dy) const {
    const auto differs = [](const torch::Tensor& a, const torch::Tensor& b) {
      return !((a - b).norm().item<double>() <= 1e-5 * b.norm().item<double>());
    };
    if (differs(layout->multiply(x, values, {}), at::mm(x, weight.t())) ||
        differs(layout->multiply_transposed(dy, values), at::mm(dy, weight)) ||
        differs(layout->unpack(layout->value_gradient(x, dy)), at::mm(dy.t(), x) * (weight != 0))) {
      throw std::runtime_error("a sparse product differs from the dense one");
    }
  }
};

std::string key(const std::string& what, double density) {
  return fmt::format("{} {}", what, density);
}

class Case {
 public:
  Case(std::string layout, const Shape& shape, int64_t tokens, const Options& options)
      : layout_(std::move(layout)),
        shape_(shape),
        tokens_(tokens),
        options_(options),
        dense_{normal({tokens, shape.inputs}, 1).to(options.device),
               normal({shape.outputs, shape.inputs}, 2).to(options.device),
               normal({tokens, shape.outputs}, 3).to(options.device)},
        x_transposed_(dense_.x.t().contiguous()) {
    for (const double density : kDensities) {
      sparse_.emplace_back(layout_, shape, density, dense_.weight);
      sparse_.back().check(dense_.x, dense_.dy);
    }
  }

  void run(Report& report) {
    const std::map<std::string, double> us = times(contenders(), options_);
    const auto dense = [&](const char* what) {
      const std::string name = what;
      const double libtorch = us.at("libtorch " + name);
      return is_cpu() ? std::min(us.at("ours " + name), libtorch) : libtorch;
    };
    const double dense_forward = dense("forward"),
                 dense_backward = dense("backward_x") + dense("backward_weight");
    double previous_ratio = 0, previous_density = 0, break_even = 0;
    std::string line;
    for (const Sparse& sparse : sparse_) {
      const auto at = [&](const char* what) { return us.at(key(what, sparse.density)); };
      const double forward = at("forward");
      const double all = forward + at("backward_x") + at("backward_weight") + at("pack") +
                         sparse.layout_us / kStepsOfMask;
      const double ratio =
          tokens_ == 1 ? forward / dense_forward : all / (dense_forward + dense_backward);
      nlohmann::json row{
          {"layout", layout_},
          {"outputs", shape_.outputs},
          {"inputs", shape_.inputs},
          {"tokens", tokens_},
          {"weights_from_memory", options_.is_cold},
          {"density", sparse.density},
          {"forward_us", forward},
          {"backward_x_us", at("backward_x")},
          {"backward_weight_us", at("backward_weight")},
          {"pack_us", at("pack")},
          {"layout_us", sparse.layout_us},
          {"dense_forward_us", dense_forward},
          {"dense_backward_us", dense_backward},
          {"forward_over_dense", forward / dense_forward},
          {"all_over_dense", all / (dense_forward + dense_backward)},
          {"forward_gflops", 2e-3 * sparse.layout->num_weights() * tokens_ / forward},
          {"dense_gflops", 2e-3 * shape_.outputs * shape_.inputs * tokens_ / dense_forward}};
      if (const auto csr = us.find(key("libtorch_csr", sparse.density)); csr != us.end()) {
        row["libtorch_csr_over_forward"] = csr->second / forward;
        row["permuted_forward_us"] = at("permuted");
        row["dense_permuted_forward_us"] = dense_forward + at("permute_weight");
      }
      report.add(row);
      line += fmt::format(" {:.2f}", ratio);
      if (ratio <= 1) {
        break_even = sparse.density;
      } else if (previous_ratio > 0 && previous_ratio <= 1) {
        break_even = previous_density + (sparse.density - previous_density) * (1 - previous_ratio) /
                                            (ratio - previous_ratio);
      }
      previous_ratio = ratio, previous_density = sparse.density;
    }
    std::printf("%s\n", fmt::format("{:<15} {:>4} x {:<4} {:>4} tokens{}: {}  even at {:.2f}{}",
                                    layout_, shape_.outputs, shape_.inputs, tokens_,
                                    options_.is_cold ? ", cold" : "", line, break_even,
                                    break_even == kDensities.back() ? " or more" : "")
                            .c_str());
    std::fflush(stdout);
  }

 private:
  bool is_cpu() const { return options_.device.is_cpu(); }
  std::vector<Contender> contenders() {
    std::vector<std::pair<std::string, Sgemm>> libraries;
    if (is_cpu()) {
      libraries = {{"ours ", &sgemm_}, {"libtorch ", libtorch_sgemm()}};
    } else {
      libraries = {{"libtorch ", nullptr}};
    }
    std::vector<Contender> all;
    for (const auto& [name, sgemm] : libraries) {
      const Sgemm own = sgemm;
      all.push_back({name + "forward", [this, own] { dense_.forward(own); }});
      all.push_back({name + "backward_x", [this, own] { dense_.backward_x(own); }});
      all.push_back({name + "backward_weight", [this, own] { dense_.backward_weight(own); }});
    }
    for (const Sparse& s : sparse_) {
      const auto add = [&](const char* what, const std::function<void()>& call) {
        all.push_back({key(what, s.density), call});
      };
      add("forward", [this, &s] { s.layout->multiply(dense_.x, s.values, {}); });
      add("backward_x", [this, &s] { s.layout->multiply_transposed(dense_.dy, s.values); });
      add("backward_weight",
          [this, &s] { s.layout->unpack(s.layout->value_gradient(dense_.x, dense_.dy)); });
      add("pack", [&s] { s.layout->pack(s.weight); });
      if (!is_looked_at_closely(s.density) || tokens_ > 1000) continue;
      add("permuted", [this, &s] { s.permuted->multiply(dense_.x, s.values, {}); });
      add("permute_weight", [this, &s] { s.weight.index_select(1, order_); });
      add("libtorch_csr", [this, &s] { at::mm(s.csr, x_transposed_); });
    }
    return all;
  }

  std::string layout_;
  Shape shape_;
  int64_t tokens_;
  Options options_;
  Dense dense_;
  torch::Tensor x_transposed_;
  torch::Tensor order_ = normal({shape_.inputs}, 14).argsort().to(options_.device);
  std::vector<Sparse> sparse_;
};

int run(int argc, char** argv) {
  Program program("sparse_linear",
                  "Linear layers by sparse kernels over dense products, by density; of one token "
                  "the forward pass, else forward, backward and 1 / 100 of a new layout.",
                  15);
  int64_t threads = 1;
  program.add("--threads", threads, "threads");
  std::vector<std::string> layouts = kLayouts;
  program.add_choices("--layouts", layouts, "layouts");
  std::vector<int64_t> tokens{1, 197, 8192};
  program.add("--tokens", tokens, "numbers of tokens");
  std::string device_name = "cpu";
  program.add("--device", device_name, "cpu or cuda, whose weights are in its caches");
  return program.run(argc, argv, [&](Report& report) {
    const torch::NoGradGuard no_grad;
    set_up(threads, report);
    const c10::Device device = use_device(device_name);
    report.note("device", device.str());
    std::string densities = "ratios at densities";
    for (const double density : kDensities) densities += fmt::format(" {}", density);
    std::printf("%s\n", densities.c_str());
    for (const std::string& layout : layouts) {
      for (const Shape& shape : kShapes) {
        for (const int64_t count : tokens) {
          const int64_t rounds =
              count > 1000 ? std::max<int64_t>(3, program.rounds() / 4) : program.rounds();
          const bool is_cold = count == 1 && device.is_cpu();
          Case(layout, shape, count, {rounds, is_cold, device}).run(report);
        }
      }
    }
  });
}

const Benchmark kBenchmark("sparse_linear", run);

}  // namespace
}  // namespace shoal::bench::sparse_linear_bench
