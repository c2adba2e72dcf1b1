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

#include "moe/experts/expert_mlp_tensors.h"
#include "moe/experts/expert_rows.h"
#include "runtime/device/real_types.h"

// R rows  D width in  H hidden width  O width out  u experts
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

int64_t rows_per_task(int64_t width) {
  constexpr int64_t kElements = 32768;
  return std::max<int64_t>(1, kElements / std::max<int64_t>(1, width));
}

/// Row weights, their gradients, and gradients of weights and biases: float32 of bfloat16.
torch::TensorOptions wide_options(const Tensor& tensor) {
  const bool is_narrow = tensor.scalar_type() == torch::kBFloat16;
  return tensor.options().dtype(is_narrow ? torch::kFloat32 : tensor.scalar_type());
}

/// Whether a bfloat16 product is so small that to prepare it, which LibTorch does once for each new
/// shape, takes longer. The number of an expert's rows is new in nearly every step.
bool is_small(const Tensor& a, const Tensor& b) {
  constexpr int64_t kMultiplyAdds = 50'000'000;
  return a.scalar_type() == torch::kBFloat16 && a.size(0) * a.size(1) * b.size(1) < kMultiplyAdds;
}

/// With rows of zeros up to a multiple of 64, so that shapes come again.
Tensor filled_up(const Tensor& x) {
  constexpr int64_t kMultiple = 64;
  const int64_t count = x.size(0), whole = (count + kMultiple - 1) / kMultiple * kMultiple;
  if (count == whole) return x;
  Tensor filled = torch::empty({whole, x.size(1)}, x.options());
  filled.narrow(0, 0, count).copy_(x);
  filled.narrow(0, count, whole - count).zero_();
  return filled;
}

/// y = x W.
void product_out(Tensor y, const Tensor& x, const Tensor& weight) {
  if (is_small(x, weight)) {
    y.copy_(at::mm(filled_up(x), weight).narrow(0, 0, y.size(0)));
  } else {
    at::mm_out(y, x, weight);
  }
}

/// One layer of all experts.
struct Layer {
  Tensor weight, bias;  ///< may be undefined

  Tensor bias_of(int64_t expert) const {
    return bias.defined() ? bias.select(0, expert) : Tensor();
  }
  /// Without the bias.
  void product(Tensor y, const Tensor& x, int64_t expert) const {
    product_out(y, x, weight.select(0, expert));
  }
  /// x is weighted already, the bias is not.
  void out(Tensor y, const Tensor& x, int64_t expert, const Tensor& row_weight) const {
    const Tensor weight_e = weight.select(0, expert);
    if (!bias.defined()) return product_out(y, x, weight_e);
    const Tensor bias_e = bias.select(0, expert);
    // Of bfloat16 rows weights are float32.
    const bool is_wide = !row_weight.defined() || row_weight.scalar_type() == y.scalar_type();
    if (is_wide && !is_small(x, weight_e)) {
      if (!row_weight.defined()) {
        at::addmm_out(y, bias_e, x, weight_e);
      } else {
        at::mul_out(y, row_weight.unsqueeze(1), bias_e);
        y.addmm_(x, weight_e);
      }
      return;
    }
    product_out(y, x, weight_e);
    y.add_(row_weight.defined() ? row_weight.unsqueeze(1) * bias_e : bias_e);
  }
};

Layer layer_of(const MaybeTensor& weight, const MaybeTensor& bias) {
  return {weight.value_or(Tensor()), bias.value_or(Tensor())};
}

template <class Value>
Value* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? data<Value>(tensor) : nullptr;
}

template <class Value>
const Value* const_data_or_null(const Tensor& tensor) {
  return tensor.defined() ? const_data<Value>(tensor) : nullptr;
}

/// The first layers' outputs for one expert's rows, [rows, H].
struct Hidden {
  Tensor pre, gate;
};

/// Biases, and what the rows' hidden values are multiplied by; each may be undefined.
struct Terms {
  Tensor bias, gate_bias, row_weight;
};

void activate(const Hidden& before, const Terms& terms, Tensor hidden, Activation activation) {
  const int64_t width = hidden.size(1);
  for_real_type(hidden, "expert_mlp", [&]<class Value, class Sum>(Value, Sum) {
    const ActivateExpert<Value> job{data<Value>(before.pre),
                                    const_data_or_null<Value>(terms.bias),
                                    data_or_null<Value>(before.gate),
                                    const_data_or_null<Value>(terms.gate_bias),
                                    const_data_or_null<Sum>(terms.row_weight),
                                    data<Value>(hidden),
                                    width,
                                    activation};
    at::parallel_for(0, hidden.size(0), rows_per_task(width),
                     [&](int64_t first, int64_t last) { activate_expert(job, first, last); });
  });
}

std::vector<Tensor> forward_cpu(const Tensor& rows, const MaybeTensor& row_weight,
                                c10::IntArrayRef rows_u, const MaybeTensor& /*end_u*/,
                                const Tensor& fc1_weight, const MaybeTensor& fc1_bias,
                                const Tensor& fc2_weight, const MaybeTensor& fc2_bias,
                                const MaybeTensor& gate_weight, const MaybeTensor& gate_bias,
                                int64_t activation, bool keep) {
  const Layer fc1 = layer_of(fc1_weight, fc1_bias), fc2 = layer_of(fc2_weight, fc2_bias);
  const Layer gate = layer_of(gate_weight, gate_bias);
  const Runs runs = runs_of(rows_u);
  const int64_t most = most_rows(rows_u), width = fc1_weight.size(2);
  const Tensor hidden = torch::empty({runs.count() * most, width}, rows.options());
  Hidden all;
  all.pre = torch::empty({keep ? rows.size(0) : runs.count() * most, width}, rows.options());
  if (gate_weight) all.gate = torch::empty_like(all.pre);
  Tensor y = torch::empty({rows.size(0), fc2_weight.size(2)}, rows.options());
  for_each_expert(runs, rows_u, [&](int64_t expert, int64_t first, int64_t count, int64_t run) {
    if (count == 0) return;
    const int64_t place = keep ? first : run * most;
    const Tensor x = rows.narrow(0, first, count);
    Hidden own{all.pre.narrow(0, place, count), {}};
    fc1.product(own.pre, x, expert);
    if (gate_weight) {
      own.gate = all.gate.narrow(0, place, count);
      gate.product(own.gate, x, expert);
    }
    const Tensor hidden_e = hidden.narrow(0, run * most, count);
    const Tensor weight_e = row_weight ? row_weight->narrow(0, first, count) : Tensor();
    activate(own, {fc1.bias_of(expert), gate.bias_of(expert), weight_e}, hidden_e,
             static_cast<Activation>(activation));
    fc2.out(y.narrow(0, first, count), hidden_e, expert, weight_e);
  });
  return to_list(keep ? ExpertMlpOutput{y, all.pre, all.gate} : ExpertMlpOutput{y, {}, {}});
}

/// Gradients of one layer of all experts, each written once.
struct LayerGrads {
  Tensor weight, bias;  ///< undefined where there is no such parameter

  LayerGrads() = default;
  /// In new tensors.
  LayerGrads(const Tensor& weight_of, bool has_bias)
      : weight(torch::empty(weight_of.sizes(), wide_options(weight_of))),
        bias(has_bias
                 ? torch::zeros({weight_of.size(0), weight_of.size(2)}, wide_options(weight_of))
                 : Tensor()) {}
  /// In these.
  LayerGrads(const Tensor& own_weight, const Tensor& own_bias)
      : weight(own_weight), bias(own_bias) {
    if (bias.defined()) bias.zero_();
  }

  void zero(int64_t expert) {
    if (weight.defined()) weight.select(0, expert).zero_();
  }
  // Of bfloat16 a product sums in float32 and is rounded once: LibTorch has none that is not.
  void write_weight(int64_t expert, const Tensor& x, const Tensor& y_grad) {
    Tensor weight_e = weight.select(0, expert);
    if (weight.scalar_type() == x.scalar_type()) {
      at::mm_out(weight_e, x.t(), y_grad);
    } else {
      const bool fills = is_small(x.t(), y_grad);
      weight_e.copy_(fills ? at::mm(filled_up(x).t(), filled_up(y_grad)) : at::mm(x.t(), y_grad));
    }
  }
  void write_bias(int64_t expert, const Tensor& y_grad) {
    if (!bias.defined()) return;
    Tensor bias_e = bias.select(0, expert);
    at::sum_out(bias_e, y_grad, 0, /*keepdim=*/false, bias.scalar_type());
  }
  void write(int64_t expert, const Tensor& x, const Tensor& y_grad) {
    write_weight(expert, x, y_grad);
    write_bias(expert, y_grad);
  }
};

/// What the rows' outputs are multiplied with; undefined: 1.
struct RowWeights {
  Tensor weight_R, grad_R;
  Tensor fc2_bias;  ///< [u, O]; may be undefined
};

/// One expert's part of these.
struct ExpertWeight {
  Tensor weight, grad, fc2_bias;

  ExpertWeight(const RowWeights& all, int64_t expert, int64_t first, int64_t count) {
    if (!all.weight_R.defined()) return;
    weight = all.weight_R.narrow(0, first, count);
    grad = all.grad_R.narrow(0, first, count);
    if (all.fc2_bias.defined()) fc2_bias = all.fc2_bias.select(0, expert);
  }
};

/// `grad` is that of `hidden`, and becomes that of before.pre.
void activate_backward(const Hidden& before, Tensor hidden, const Hidden& grad,
                       const ExpertWeight& weight, Activation activation) {
  const int64_t width = hidden.size(1);
  for_real_type(hidden, "expert_mlp", [&]<class Value, class Sum>(Value, Sum) {
    const ActivateExpertBackward<Value> job{data<Value>(grad.pre),
                                            const_data<Value>(before.pre),
                                            const_data_or_null<Value>(before.gate),
                                            data<Value>(hidden),
                                            data_or_null<Value>(grad.gate),
                                            const_data_or_null<Sum>(weight.weight),
                                            data_or_null<Sum>(weight.grad),
                                            width,
                                            activation};
    at::parallel_for(0, hidden.size(0), rows_per_task(width), [&](int64_t first, int64_t last) {
      activate_expert_backward(job, first, last);
    });
  });
}

/// The second bias of one expert. float32 sums of many rows are sums of partial ones.
void second_bias_backward(LayerGrads& fc2, int64_t expert, const Tensor& y_grad,
                          const ExpertWeight& weight) {
  constexpr int64_t kRows = 128;
  if (!weight.weight.defined()) return fc2.write_bias(expert, y_grad);
  if (!fc2.bias.defined()) return;
  const Tensor sum = fc2.bias.select(0, expert), partial = torch::empty_like(sum);
  const int64_t num_rows = y_grad.size(0), width = y_grad.size(1);
  for_real_type(y_grad, "expert_mlp", [&]<class Value, class Sum>(Value, Sum) {
    for (int64_t first = 0; first < num_rows; first += kRows) {
      partial.zero_();
      const WeightedBias<Value> job{const_data<Value>(y_grad) + first * width,
                                    const_data<Value>(weight.fc2_bias),
                                    const_data<Sum>(weight.weight) + first,
                                    data<Sum>(partial),
                                    data<Sum>(weight.grad) + first,
                                    width};
      add_weighted_bias(job, std::min(kRows, num_rows - first));
      sum.add_(partial);
    }
  });
}

struct Backward {
  c10::IntArrayRef rows_u;
  Activation activation;
  bool has_bias, needs_rows_grad;
  at::TensorList into;  ///< the weights' gradients, undefined where there is no weight; empty: new
};

ExpertMlpGradients run_backward(const Tensor& grad, const ExpertMlpSaved& saved,
                                const RowWeights& weights, const Backward& call) {
  const auto layer = [&](size_t place, const Tensor& weight) {
    return call.into.empty() ? LayerGrads(weight, call.has_bias)
                             : LayerGrads(call.into[place], call.into[place + 1]);
  };
  LayerGrads fc1 = layer(0, saved.fc1_weight), fc2 = layer(2, saved.fc2_weight), gate;
  if (saved.has_gate()) gate = layer(4, saved.gate_weight);
  Tensor rows_grad = call.needs_rows_grad ? torch::empty_like(saved.rows) : Tensor();
  const Runs runs = runs_of(call.rows_u);
  const int64_t most = most_rows(call.rows_u), width = saved.pre.size(1);
  const int64_t num_buffers = saved.has_gate() ? 3 : 2;
  const Tensor scratch =
      torch::empty({num_buffers, runs.count() * most, width}, saved.pre.options());
  const auto body = [&](int64_t expert, int64_t first, int64_t count, int64_t run) {
    if (count == 0) {
      for (LayerGrads* layer : {&fc1, &fc2, &gate}) layer->zero(expert);
      return;
    }
    const auto of = [&](const Tensor& all) {
      return all.defined() ? all.narrow(0, first, count) : Tensor();
    };
    const auto buffer = [&](int64_t i) {
      return i < num_buffers ? scratch.select(0, i).narrow(0, run * most, count) : Tensor();
    };
    const Tensor x = of(saved.rows), y_grad = of(grad), hidden = buffer(0);
    const Hidden own_grad{buffer(1), buffer(2)};
    const ExpertWeight weight(weights, expert, first, count);
    Tensor pre_grad = own_grad.pre;
    product_out(pre_grad, y_grad, saved.fc2_weight.select(0, expert).t());
    activate_backward({of(saved.pre), of(saved.gate)}, hidden, own_grad, weight, call.activation);
    fc2.write_weight(expert, hidden, y_grad);
    second_bias_backward(fc2, expert, y_grad, weight);
    fc1.write(expert, x, pre_grad);
    if (saved.has_gate()) gate.write(expert, x, own_grad.gate);
    if (!call.needs_rows_grad) return;
    Tensor rows_grad_e = of(rows_grad);
    product_out(rows_grad_e, pre_grad, saved.fc1_weight.select(0, expert).t());
    if (!saved.has_gate()) return;
    const Tensor gate_weight_t = saved.gate_weight.select(0, expert).t();
    if (is_small(own_grad.gate, gate_weight_t)) {
      const Tensor more = torch::empty_like(rows_grad_e);
      product_out(more, own_grad.gate, gate_weight_t);
      rows_grad_e.add_(more);
    } else {
      rows_grad_e.addmm_(own_grad.gate, gate_weight_t);
    }
  };
  for_each_expert(runs, call.rows_u, body);
  if (!call.into.empty()) fc1 = fc2 = gate = {};
  return {rows_grad,  weights.grad_R, fc1.weight,  fc1.bias,
          fc2.weight, fc2.bias,       gate.weight, gate.bias};
}

std::vector<Tensor> backward_cpu(const Tensor& grad, at::TensorList list, at::TensorList into,
                                 c10::IntArrayRef rows_u, const MaybeTensor& /*end_u*/,
                                 int64_t activation, bool needs_rows_grad) {
  const auto saved = from_list<ExpertMlpSaved>(list);
  RowWeights weights;
  if (saved.row_weight.defined()) {
    weights = {saved.row_weight, torch::empty_like(saved.row_weight), saved.fc2_bias};
  }
  return to_list(run_backward(grad, saved, weights,
                              {rows_u, static_cast<Activation>(activation),
                               saved.fc2_bias.defined(), needs_rows_grad, into}));
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) {
  m.impl("expert_mlp_forward", forward_cpu);
  m.impl("expert_mlp_backward", backward_cpu);
}

}  // namespace shoal
