#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "moe/experts/expert_mlp.h"
#include "runtime/device/real_types.h"

// The compiler vectorises the plain loops of expert_rows.h, once for each instruction set.
#pragma GCC optimize("O3", "fp-contract=fast", "no-trapping-math", "no-math-errno")
#include "moe/experts/expert_rows.h"

// R rows  D width in  H hidden width  O width out  u experts
namespace shoal {
namespace {

using torch::Tensor;

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

/// y += x W.
void add_product(Tensor y, const Tensor& x, const Tensor& weight) {
  if (is_small(x, weight)) {
    const Tensor more = torch::empty_like(y);
    product_out(more, x, weight);
    y.add_(more);
  } else {
    y.addmm_(x, weight);
  }
}

/// y = x W + row_weight bias: x is weighted already. The bias and the row weights may be undefined.
void second_layer_out(Tensor y, const Tensor& x, const ExpertWeights& weights,
                      const Tensor& row_weight) {
  const Tensor &weight = weights.fc2_weight, &bias = weights.fc2_bias;
  if (!bias.defined()) return product_out(y, x, weight);
  // Of bfloat16 rows weights are float32.
  const bool is_wide = !row_weight.defined() || row_weight.scalar_type() == y.scalar_type();
  if (!is_wide || is_small(x, weight)) {
    product_out(y, x, weight);
    y.add_(row_weight.defined() ? row_weight.unsqueeze(1) * bias : bias);
  } else if (!row_weight.defined()) {
    at::addmm_out(y, bias, x, weight);
  } else {
    at::mul_out(y, row_weight.unsqueeze(1), bias);
    y.addmm_(x, weight);
  }
}

/// Rows of a tensor that may be undefined.
Tensor rows_of(const Tensor& all, int64_t first, int64_t count) {
  return all.defined() ? all.narrow(0, first, count) : all;
}

/// One expert's layers, [D, H], [H] and so on.
ExpertWeights select(const ExpertWeights& stack, int64_t expert) {
  return stack.changed([&](const Tensor& tensor) { return tensor.select(0, expert); });
}

/// Memory for the rows of a first layer. `num_runs` 0: of all experts, which are kept. Otherwise:
/// of the largest expert of each run. An expert's rows begin at the same place of a cache line in
/// both: a BLAS may round a product otherwise where its result is aligned otherwise.
class FirstLayerRows {
 public:
  FirstLayerRows(const Tensor& rows, int64_t width, int64_t most, int64_t num_runs)
      : width_(width),
        kept_rows_(num_runs > 0 ? 0 : rows.size(0)),
        run_size_((most * width / kLine + 2) * kLine),
        all_(torch::empty({num_runs > 0 ? num_runs * run_size_ : kept_rows_ * width},
                          rows.options())),
        is_kept_(num_runs == 0) {}

  Tensor of_expert(int64_t first, int64_t count, int64_t run) const {
    const int64_t begin = first * width_;
    return all_.narrow(0, is_kept_ ? begin : run * run_size_ + begin % kLine, count * width_)
        .view({count, width_});
  }
  /// Undefined if they are not kept.
  Tensor kept() const { return is_kept_ ? all_.view({kept_rows_, width_}) : Tensor(); }

 private:
  static constexpr int64_t kLine = 64;  // elements: of any dtype a whole number of lines
  int64_t width_, kept_rows_, run_size_;
  Tensor all_;
  bool is_kept_;
};

std::tuple<Tensor, Tensor, Tensor> forward_cpu(const Tensor& rows, const MaybeTensor& row_weight,
                                               at::TensorList list, c10::IntArrayRef rows_u,
                                               const MaybeTensor& /*end_u*/, int64_t activation,
                                               bool keep) {
  const auto stack = ExpertWeights::of_list(list);
  const Runs runs = runs_of(rows_u);
  const int64_t most = most_rows(rows_u), width = stack.fc1_weight.size(2);
  const Tensor hidden = torch::empty({runs.count() * most, width}, rows.options());
  const int64_t num_runs = keep ? 0 : std::max<int64_t>(1, runs.count());
  const FirstLayerRows pre(rows, width, most, num_runs);
  const std::optional<FirstLayerRows> gate =
      stack.gate_weight.defined() ? std::optional(FirstLayerRows(rows, width, most, num_runs))
                                  : std::nullopt;
  Tensor y = torch::empty({rows.size(0), stack.fc2_weight.size(2)}, rows.options());
  for_each_expert(runs, rows_u, [&](int64_t expert, int64_t first, int64_t count, int64_t run) {
    if (count == 0) return;
    const ExpertWeights own = select(stack, expert);
    const Tensor x = rows.narrow(0, first, count);
    const Tensor weight_e = rows_of(row_weight.value_or(Tensor()), first, count);
    const Tensor pre_e = pre.of_expert(first, count, run);
    const Tensor gate_e = gate ? gate->of_expert(first, count, run) : Tensor();
    const Tensor hidden_e = hidden.narrow(0, run * most, count);
    product_out(pre_e, x, own.fc1_weight);
    if (gate_e.defined()) product_out(gate_e, x, own.gate_weight);
    for_real_type(hidden, "expert_mlp", [&]<class Value, class Sum>(Value, Sum) {
      const expert_rows::Activate<Value> job{data<Value>(pre_e),
                                             const_data_or_null<Value>(own.fc1_bias),
                                             data_or_null<Value>(gate_e),
                                             const_data_or_null<Value>(own.gate_bias),
                                             const_data_or_null<Sum>(weight_e),
                                             data<Value>(hidden_e),
                                             width,
                                             static_cast<Activation>(activation)};
      at::parallel_for(0, count, rows_per_task(width),
                       [&](int64_t begin, int64_t end) { expert_rows::activate(job, begin, end); });
    });
    second_layer_out(y.narrow(0, first, count), hidden_e, own, weight_e);
  });
  return {y, pre.kept(), gate ? gate->kept() : Tensor()};
}

/// Gradients of the weights, to be written once each: in `into`, or in new tensors.
ExpertWeights gradients_of(const ExpertWeights& weights, at::TensorList into) {
  ExpertWeights grads;
  if (!into.empty()) {
    grads = ExpertWeights::of_list(into);
  } else {
    const auto add = [&](const Tensor& weight, Tensor& weight_grad, Tensor& bias_grad) {
      if (!weight.defined()) return;
      const auto options = weight.options().dtype(wide_dtype(weight.scalar_type()));
      weight_grad = torch::empty(weight.sizes(), options);
      if (!weights.fc2_bias.defined()) return;
      bias_grad = torch::empty({weight.size(0), weight.size(2)}, options);
    };
    add(weights.fc1_weight, grads.fc1_weight, grads.fc1_bias);
    add(weights.fc2_weight, grads.fc2_weight, grads.fc2_bias);
    add(weights.gate_weight, grads.gate_weight, grads.gate_bias);
  }
  for (const Tensor& bias : {grads.fc1_bias, grads.fc2_bias, grads.gate_bias}) {
    if (bias.defined()) bias.zero_();
  }
  return grads;
}

// Of bfloat16 a product sums in float32 and is rounded once: LibTorch has none that is not.
void write_weight(Tensor grad, const Tensor& x, const Tensor& y_grad) {
  if (grad.scalar_type() == x.scalar_type()) {
    at::mm_out(grad, x.t(), y_grad);
  } else {
    const bool fills = is_small(x.t(), y_grad);
    grad.copy_(fills ? at::mm(filled_up(x).t(), filled_up(y_grad)) : at::mm(x.t(), y_grad));
  }
}

void write_bias(Tensor grad, const Tensor& y_grad) {
  if (grad.defined()) at::sum_out(grad, y_grad, 0, /*keepdim=*/false, grad.scalar_type());
}

/// What the rows' outputs are multiplied with, and its gradient; undefined: 1.
struct RowWeights {
  Tensor value, grad;
};

/// The second bias of one expert. float32 sums of many rows are sums of partial ones.
void second_bias_backward(const Tensor& bias, const Tensor& bias_grad, const Tensor& y_grad,
                          const RowWeights& weight) {
  constexpr int64_t kRows = 128;
  if (!weight.value.defined()) return write_bias(bias_grad, y_grad);
  if (!bias.defined()) return;
  const Tensor partial = torch::empty_like(bias_grad);
  const int64_t num_rows = y_grad.size(0), width = y_grad.size(1);
  for_real_type(y_grad, "expert_mlp", [&]<class Value, class Sum>(Value, Sum) {
    for (int64_t first = 0; first < num_rows; first += kRows) {
      partial.zero_();
      const expert_rows::WeightedBias<Value> job{const_data<Value>(y_grad) + first * width,
                                                 const_data<Value>(bias),
                                                 const_data<Sum>(weight.value) + first,
                                                 data<Sum>(partial),
                                                 data<Sum>(weight.grad) + first,
                                                 width};
      expert_rows::add_weighted_bias(job, std::min(kRows, num_rows - first));
      bias_grad.add_(partial);
    }
  });
}

std::tuple<Tensor, Tensor, std::vector<Tensor>> backward_cpu(
    const Tensor& grad, at::TensorList saved, at::TensorList list, at::TensorList into,
    c10::IntArrayRef rows_u, const MaybeTensor& /*end_u*/, int64_t activation,
    bool needs_rows_grad) {
  const Tensor &rows = saved[0], &pre = saved[1], &gate = saved[2], &row_weight = saved[3];
  const auto stack = ExpertWeights::of_list(list);
  const ExpertWeights grads = gradients_of(stack, into);
  const Tensor rows_grad = needs_rows_grad ? torch::empty_like(rows) : Tensor();
  const Tensor row_weight_grad = row_weight.defined() ? torch::empty_like(row_weight) : Tensor();
  const Runs runs = runs_of(rows_u);
  const int64_t most = most_rows(rows_u), width = pre.size(1);
  const int64_t num_buffers = gate.defined() ? 3 : 2;
  const Tensor scratch = torch::empty({num_buffers, runs.count() * most, width}, pre.options());
  const auto body = [&](int64_t expert, int64_t first, int64_t count, int64_t run) {
    const ExpertWeights own_grads = select(grads, expert);
    if (count == 0) {
      for (const Tensor& unused :
           {own_grads.fc1_weight, own_grads.fc2_weight, own_grads.gate_weight}) {
        if (unused.defined()) unused.zero_();
      }
      return;
    }
    const ExpertWeights own = select(stack, expert);
    const auto of = [&](const Tensor& all) { return rows_of(all, first, count); };
    const auto buffer = [&](int64_t i) {
      return i < num_buffers ? scratch.select(0, i).narrow(0, run * most, count) : Tensor();
    };
    const Tensor x = of(rows), y_grad = of(grad);
    const Tensor hidden = buffer(0), pre_grad = buffer(1), gate_grad = buffer(2);
    const RowWeights weight{of(row_weight), of(row_weight_grad)};
    product_out(pre_grad, y_grad, own.fc2_weight.t());
    for_real_type(hidden, "expert_mlp", [&]<class Value, class Sum>(Value, Sum) {
      const expert_rows::ActivateBackward<Value> job{data<Value>(pre_grad),
                                                     const_data<Value>(of(pre)),
                                                     const_data_or_null<Value>(of(gate)),
                                                     data<Value>(hidden),
                                                     data_or_null<Value>(gate_grad),
                                                     const_data_or_null<Sum>(weight.value),
                                                     data_or_null<Sum>(weight.grad),
                                                     width,
                                                     static_cast<Activation>(activation)};
      at::parallel_for(0, count, rows_per_task(width), [&](int64_t begin, int64_t end) {
        expert_rows::activate_backward(job, begin, end);
      });
    });
    write_weight(own_grads.fc2_weight, hidden, y_grad);
    second_bias_backward(own.fc2_bias, own_grads.fc2_bias, y_grad, weight);
    write_weight(own_grads.fc1_weight, x, pre_grad);
    write_bias(own_grads.fc1_bias, pre_grad);
    if (gate.defined()) {
      write_weight(own_grads.gate_weight, x, gate_grad);
      write_bias(own_grads.gate_bias, gate_grad);
    }
    if (!needs_rows_grad) return;
    product_out(of(rows_grad), pre_grad, own.fc1_weight.t());
    if (gate.defined()) add_product(of(rows_grad), gate_grad, own.gate_weight.t());
  };
  for_each_expert(runs, rows_u, body);
  return {rows_grad, row_weight_grad, into.empty() ? grads.to_list() : ExpertWeights().to_list()};
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) {
  m.impl("expert_mlp_forward", forward_cpu);
  m.impl("expert_mlp_backward", backward_cpu);
}

}  // namespace shoal
