#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "runtime/bias_activation.h"

// R rows  D width in  H hidden width  O width out  u experts
//
// Kept for backward: `hidden`, the input of the second layer; `slope`, its derivative by what the
// activation was applied to; with a gate also `gate`, its derivative by the first layer's output.
namespace shoal {
namespace {

using torch::Tensor;
using MaybeTensor = std::optional<Tensor>;

/// Neighbouring experts that one thread works on: run i has the experts [first[i], first[i + 1]).
struct Runs {
  std::vector<size_t> first;
  int64_t count() const { return static_cast<int64_t>(first.size()) - 1; }
};

/// A run for each thread where that gives them even shares of the rows, which is faster than to
/// share each product between all; else one run.
Runs runs_of(c10::IntArrayRef rows_u) {
  constexpr double kMostOverMean = 1.15;
  const Runs one{{0, rows_u.size()}};
  const auto num_threads = static_cast<size_t>(at::get_num_threads());
  const int64_t total = std::accumulate(rows_u.begin(), rows_u.end(), int64_t{0});
  if (num_threads < 2 || rows_u.size() < num_threads || total == 0 || at::in_parallel_region()) {
    return one;
  }
  const double mean = static_cast<double>(total) / static_cast<double>(num_threads);
  Runs runs{{0}};
  int64_t before = 0, in_run = 0;
  for (size_t expert = 0; expert < rows_u.size(); ++expert) {
    const double middle = static_cast<double>(before) + 0.5 * static_cast<double>(rows_u[expert]);
    if (middle > mean * static_cast<double>(runs.first.size()) && in_run > 0) {
      runs.first.push_back(expert);
      in_run = 0;
    }
    before += rows_u[expert];
    in_run += rows_u[expert];
    if (static_cast<double>(in_run) > kMostOverMean * mean) return one;
  }
  runs.first.push_back(rows_u.size());
  return runs;
}

/// Calls `body(expert, first row, rows, run)` for each expert, the runs side by side.
template <class Body>
void for_each_expert(const Runs& runs, c10::IntArrayRef rows_u, const Body& body) {
  std::vector<int64_t> first_row(rows_u.size() + 1, 0);
  std::partial_sum(rows_u.begin(), rows_u.end(), first_row.begin() + 1);
  const auto work = [&](int64_t begin, int64_t end) {
    // Threads of the pool would record gradients.
    const at::AutoDispatchBelowADInplaceOrView guard;
    for (int64_t run = begin; run < end; ++run) {
      const auto i = static_cast<size_t>(run);
      for (size_t expert = runs.first[i]; expert < runs.first[i + 1]; ++expert) {
        body(static_cast<int64_t>(expert), first_row[expert], rows_u[expert], run);
      }
    }
  };
  if (runs.count() == 1) return work(0, 1);
  at::parallel_for(0, runs.count(), 1, work);
}

int64_t most_rows(c10::IntArrayRef rows_u) {
  return rows_u.empty() ? 0 : *std::max_element(rows_u.begin(), rows_u.end());
}

/// One layer of all experts.
struct Layer {
  Tensor weight, bias;  ///< the bias may be undefined

  Tensor bias_of(int64_t expert) const {
    return bias.defined() ? bias.select(0, expert) : Tensor();
  }

  void out(Tensor y, const Tensor& x, int64_t expert) const {
    if (bias.defined()) {
      at::addmm_out(y, bias.select(0, expert), x, weight.select(0, expert));
    } else {
      at::mm_out(y, x, weight.select(0, expert));
    }
  }

  /// y = act(x W + b); the derivative by x W + b goes to `slope`.
  void activate(Tensor y, Tensor slope, const Tensor& x, int64_t expert, Activation activation,
                bool keep) const {
    at::mm_out(slope, x, weight.select(0, expert));
    bias_activation_out(y, keep ? slope : Tensor(), slope, {bias_of(expert), activation, 1});
  }
};

Layer layer_of(const Tensor& weight, const MaybeTensor& bias) {
  return {weight, bias.value_or(Tensor())};
}

/// Buffers [rows, H] of the first layer.
struct Hidden {
  Tensor hidden, slope, gate;

  Hidden(int64_t num_rows, const Tensor& fc1_weight, bool has_gate)
      : hidden(torch::empty({num_rows, fc1_weight.size(2)}, fc1_weight.options())),
        slope(torch::empty_like(hidden)),
        gate(has_gate ? torch::empty_like(hidden) : Tensor()) {}
};

std::vector<Tensor> forward_cpu(const Tensor& rows, c10::IntArrayRef rows_u,
                                const MaybeTensor& /*end_u*/, const Tensor& fc1_weight,
                                const MaybeTensor& fc1_bias, const Tensor& fc2_weight,
                                const MaybeTensor& fc2_bias, const MaybeTensor& gate_weight,
                                const MaybeTensor& gate_bias, int64_t activation, bool keep) {
  const Layer fc1 = layer_of(fc1_weight, fc1_bias), fc2 = layer_of(fc2_weight, fc2_bias);
  const Layer gate = layer_of(gate_weight.value_or(Tensor()), gate_bias);
  const bool has_gate = gate_weight.has_value();
  const auto act = static_cast<Activation>(activation);
  const Runs runs = runs_of(rows_u);
  const int64_t most = most_rows(rows_u);
  const Hidden all(keep ? rows.size(0) : runs.count() * most, fc1_weight, has_gate);
  Tensor y = torch::empty({rows.size(0), fc2_weight.size(2)}, rows.options());
  for_each_expert(runs, rows_u, [&](int64_t expert, int64_t first, int64_t count, int64_t run) {
    if (count == 0) return;
    const int64_t place = keep ? first : run * most;
    const Tensor x = rows.narrow(0, first, count);
    Tensor hidden = all.hidden.narrow(0, place, count), slope = all.slope.narrow(0, place, count);
    if (has_gate) {
      Tensor gate_e = all.gate.narrow(0, place, count);
      gate.activate(gate_e, slope, x, expert, act, keep);
      fc1.out(hidden, x, expert);
      if (keep) slope.mul_(hidden);
      hidden.mul_(gate_e);
    } else {
      fc1.activate(hidden, slope, x, expert, act, keep);
    }
    fc2.out(y.narrow(0, first, count), hidden, expert);
  });
  if (has_gate) return {y, all.hidden, all.slope, all.gate};
  return {y, all.hidden, all.slope};
}

/// Gradients of one layer of all experts, each written once.
struct LayerGrads {
  Tensor weight, bias;  ///< undefined where there is no such parameter

  LayerGrads() = default;
  LayerGrads(const Tensor& weight_of, bool has_bias)
      : weight(torch::empty_like(weight_of)),
        bias(has_bias ? torch::zeros({weight_of.size(0), weight_of.size(2)}, weight_of.options())
                      : Tensor()) {}

  void zero(int64_t expert) {
    if (weight.defined()) weight.select(0, expert).zero_();
  }
  void write_weight(int64_t expert, const Tensor& x, const Tensor& y_grad) {
    Tensor weight_e = weight.select(0, expert);
    at::mm_out(weight_e, x.t(), y_grad);
  }
  void write_bias(int64_t expert, const Tensor& y_grad) {
    if (!bias.defined()) return;
    Tensor bias_e = bias.select(0, expert);
    at::sum_out(bias_e, y_grad, 0);
  }
  /// `grad` is that of the activation's output, and becomes that of its input.
  void write_activated(int64_t expert, const Tensor& x, Tensor grad, const Tensor& slope) {
    bias_activation_backward(grad, slope, bias.defined() ? bias.select(0, expert) : Tensor(), 1);
    write_weight(expert, x, grad);
  }
};

struct Saved {
  Tensor rows, hidden, slope, gate, fc1_weight, fc2_weight, gate_weight;
  bool has_gate;

  explicit Saved(at::TensorList list) : has_gate(list.size() == 7) {
    size_t next = 0;
    for (Tensor* tensor : {&rows, &hidden, &slope}) *tensor = list[next++];
    if (has_gate) gate = list[next++];
    fc1_weight = list[next++];
    fc2_weight = list[next++];
    if (has_gate) gate_weight = list[next];
  }
};

std::vector<Tensor> backward_cpu(const Tensor& grad, at::TensorList list, c10::IntArrayRef rows_u,
                                 const MaybeTensor& /*end_u*/, int64_t /*activation*/,
                                 bool has_bias, bool needs_rows_grad) {
  const Saved saved(list);
  LayerGrads fc1(saved.fc1_weight, has_bias), fc2(saved.fc2_weight, has_bias), gate;
  if (saved.has_gate) gate = LayerGrads(saved.gate_weight, has_bias);
  LayerGrads& activated = saved.has_gate ? gate : fc1;
  const Tensor& activated_weight = saved.has_gate ? saved.gate_weight : saved.fc1_weight;
  Tensor rows_grad = needs_rows_grad ? torch::empty_like(saved.rows) : Tensor();
  const Runs runs = runs_of(rows_u);
  const int64_t most = most_rows(rows_u);
  const Hidden scratch(runs.count() * most, saved.fc1_weight, saved.has_gate);
  for_each_expert(runs, rows_u, [&](int64_t expert, int64_t first, int64_t count, int64_t run) {
    if (count == 0) {
      for (LayerGrads* layer : {&fc1, &fc2, &gate}) layer->zero(expert);
      return;
    }
    const auto of = [&](const Tensor& all) { return all.narrow(0, first, count); };
    const Tensor x = of(saved.rows), y_grad = of(grad);
    fc2.write_weight(expert, of(saved.hidden), y_grad);
    fc2.write_bias(expert, y_grad);
    Tensor hidden_grad = scratch.hidden.narrow(0, run * most, count), up_grad;
    at::mm_out(hidden_grad, y_grad, saved.fc2_weight.select(0, expert).t());
    if (saved.has_gate) {
      up_grad = scratch.gate.narrow(0, run * most, count);
      at::mul_out(up_grad, hidden_grad, of(saved.gate));
      fc1.write_weight(expert, x, up_grad);
      fc1.write_bias(expert, up_grad);
    }
    activated.write_activated(expert, x, hidden_grad, of(saved.slope));
    if (!needs_rows_grad) return;
    Tensor rows_grad_e = of(rows_grad);
    at::mm_out(rows_grad_e, hidden_grad, activated_weight.select(0, expert).t());
    if (saved.has_gate) rows_grad_e.addmm_(up_grad, saved.fc1_weight.select(0, expert).t());
  });
  return {rows_grad, fc1.weight, fc1.bias, fc2.weight, fc2.bias, gate.weight, gate.bias};
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) {
  m.impl("expert_mlp_forward", forward_cpu);
  m.impl("expert_mlp_backward", backward_cpu);
}

}  // namespace shoal
