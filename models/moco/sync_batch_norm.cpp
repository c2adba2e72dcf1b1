#include "models/moco/sync_batch_norm.h"

#include "runtime/device/autograd_function.h"
#include "runtime/device/real_types.h"

// b rows on this rank  D features
namespace shoal {
namespace {

using torch::Tensor;

constexpr double kEpsilon = 1e-5, kMomentum = 0.1;

/// Statistics of the rows of all ranks; the variance is biased, count a scalar.
struct Statistics {
  Tensor mean_D, variance_D, count;
};

/// Collective, with two all-reduces, since summing differences from the mean is more accurate.
Statistics statistics_of(const Tensor& x_bD, Communicator& world) {
  const int64_t D = x_bD.size(1);
  const Tensor sum_D1 = torch::cat({x_bD.sum(0), x_bD.new_full({1}, x_bD.size(0))});
  all_reduce(world, sum_D1);
  const Tensor count = sum_D1[D].clamp_min(1);
  const Tensor mean_D = sum_D1.narrow(0, 0, D) / count;
  const Tensor square_D = (x_bD - mean_D).square().sum(0);
  all_reduce(world, square_D);
  return {mean_D, square_D / count, count};
}

/// (x - mean) / sqrt(variance + epsilon) with statistics that depend on the x of all ranks.
struct Normalise : torch::autograd::Function<Normalise> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_bD, const Tensor& mean_D,
                        const Tensor& inverse_D, const Tensor& count, Communicator* world) {
    const Tensor y_bD = (x_bD - mean_D) * inverse_D;
    ctx->save_for_backward({y_bD, inverse_D, count});
    save_value(ctx, world);
    return y_bD;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &dy_bD = grads[0], &y_bD = saved[0], &inverse_D = saved[1], &count = saved[2];
    const Tensor sum_2D = torch::stack({dy_bD.sum(0), (dy_bD * y_bD).sum(0)});
    all_reduce(*saved_value<Communicator*>(ctx), sum_2D);
    const Tensor mean_2D = sum_2D / count;
    return {(dy_bD - mean_2D[0] - y_bD * mean_2D[1]) * inverse_D, {}, {}, {}, {}};
  }
};

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(int64_t features, bool is_affine,
                                     const torch::TensorOptions& options, Communicator* world)
    : world_(world) {
  if (is_affine) {
    weight = add_parameter("weight", {features}, options, Init::ones());
    bias = add_parameter("bias", {features}, options, Init::zeros());
  }
  running_mean = add_buffer("running_mean", {features}, options, Init::zeros());
  running_var = add_buffer("running_var", {features}, options, Init::ones());
}

Tensor SyncBatchNormImpl::forward(const Tensor& x_bD, bool is_training) {
  const Tensor wide_bD = at_least_float32(x_bD);
  Tensor y_bD;
  if (is_training) {
    const Statistics batch = [&] {
      const torch::NoGradGuard no_grad;
      const Statistics own = statistics_of(wide_bD.detach(), *world_);
      move_running(own.mean_D, own.variance_D, own.count);
      return own;
    }();
    y_bD = Normalise::apply(wide_bD, batch.mean_D, (batch.variance_D + kEpsilon).rsqrt(),
                            batch.count, world_);
  } else {
    y_bD = (wide_bD - running_mean) * (running_var + kEpsilon).rsqrt();
  }
  return weight.defined() ? y_bD * weight + bias : y_bD;
}

void SyncBatchNormImpl::move_running(const Tensor& mean_D, const Tensor& variance_D,
                                     const Tensor& count) {
  const Tensor unbiased_D = variance_D * (count / (count - 1).clamp_min(1));
  // A variance may overflow where neither x nor any gradient does.
  const Tensor is_finite = (mean_D.isfinite().all() & unbiased_D.isfinite().all());
  const auto move = [&](const Tensor& running_D, const Tensor& batch_D) {
    running_D.copy_(torch::where(is_finite, running_D.lerp(batch_D, kMomentum), running_D));
  };
  move(running_mean, mean_D);
  move(running_var, unbiased_D);
}

}  // namespace shoal
