#include "tests/support/parallel_checks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "parallel/comm/collectives.h"
#include "parallel/gradients/gradient_norm.h"
#include "parallel/gradients/gradient_sync.h"
#include "parallel/gradients/step_control.h"

namespace shoal::testing {
namespace {

using torch::Tensor;

int64_t rows_in(const RowCounts& rows) {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

/// Rows from one rank to another: uneven, some none; rank 2 sends nothing at all.
int64_t rows_between(int64_t from, int64_t to) { return from == 2 ? 0 : (from + 2 * to + 1) % 3; }

RowCounts sent(const Communicator& comm) {
  RowCounts rows;
  for (int64_t to = 0; to < comm.size(); ++to) rows.push_back(rows_between(comm.rank(), to));
  return rows;
}

RowCounts received(const Communicator& comm) {
  RowCounts rows;
  for (int64_t from = 0; from < comm.size(); ++from) {
    rows.push_back(rows_between(from, comm.rank()));
  }
  return rows;
}

/// A loss whose derivative differs from element to element and from rank to rank.
Tensor uneven_loss(const Tensor& y, int64_t rank) {
  return (y.sin() * wave(y.sizes(), rank + 7)).sum();
}

void differentiates_all_to_all(std::unique_ptr<Communicator> world) {
  const RowCounts send = sent(*world);
  const RowCounts recv = received(*world);
  expect_true_gradient(*world, wave({rows_in(send), 2}, world->rank()), [&](const Tensor& x) {
    return uneven_loss(all_to_all(x, send, recv, *world), world->rank());
  });
}

void differentiates_overlapping_exchanges(std::unique_ptr<Communicator> world) {
  const RowCounts send = sent(*world);
  const RowCounts recv = received(*world);
  const int64_t rank = world->rank();
  // Two exchanges on their way at once, there and back again, finished out of order.
  expect_true_gradient(*world, wave({rows_in(send), 2}, rank), [&](const Tensor& x) {
    StartedExchange first = start_all_to_all(x, send, recv, *world);
    StartedExchange second = start_all_to_all(x * x, send, recv, *world);
    const Tensor b = finish_all_to_all(std::move(second)).cos();
    const Tensor a = finish_all_to_all(std::move(first));
    StartedExchange back = start_all_to_all(a * b, recv, send, *world);
    const Tensor direct = uneven_loss(b, rank);
    return direct + uneven_loss(finish_all_to_all(std::move(back)) * x, rank);
  });
}

void differentiates_all_reduce(std::unique_ptr<Communicator> world) {
  expect_true_gradient(*world, wave({2, 2}, world->rank()), [&](const Tensor& x) {
    return uneven_loss(all_reduce_sum(x, *world), world->rank());
  });
}

struct SyncCase {
  int64_t bucket_bytes, micro_steps;
  at::ScalarType expert_dtype;
};

/// With 2^rank as gradient a sum shows exactly who took part.
void expect_sums_over_replicas(RankGrid& grid, const SyncCase& test) {
  const int64_t size = grid.world->size(), rank = grid.world->rank();
  const int64_t expert_ranks = grid.expert->size();
  const std::vector<int64_t> units{rank % expert_ranks};
  const std::vector<Parameter> parameters{
      make_parameter("a", {3}, nullptr, torch::kFloat), make_parameter("b", {2, 2}),
      make_parameter("experts.*.w", {5}, &units, test.expert_dtype), make_parameter("c", {17})};
  GradientSync sync(group_parameters(parameters, grid), *grid.world, test.bucket_bytes);
  sync.zero_grad();
  const double probe = std::exp2(rank) / static_cast<double>(test.micro_steps);
  for (int64_t micro = 0; micro < test.micro_steps; ++micro) {
    for (const Parameter& parameter : parameters) (parameter.tensor * probe).sum().backward();
  }
  sync.reduce();

  const double all = std::exp2(size) - 1;
  double replicas = 0;
  for (int64_t r = rank % expert_ranks; r < size; r += expert_ranks) replicas += std::exp2(r);
  for (const Parameter& parameter : parameters) {
    const double expected = parameter.is_stacked() ? replicas : all;
    EXPECT_TRUE(
        at::equal(parameter.tensor.grad(), at::full_like(parameter.tensor.grad(), expected)))
        << parameter.name;
  }
}

/// Probe P6: over 1 to 4 ranks 64 combinations of grid, buckets, micro-steps and dtype.
void sums_gradients_over_the_replicas_only(std::unique_ptr<Communicator> world) {
  for (int64_t expert_ranks = 1; expert_ranks <= world->size(); ++expert_ranks) {
    if (world->size() % expert_ranks != 0) continue;
    SCOPED_TRACE("expert_ranks " + std::to_string(expert_ranks));
    RankGrid grid = make_rank_grid(world->split(0, world->rank()), expert_ranks);
    for (const int64_t bucket_bytes : {1, 25'000'000}) {
      for (const int64_t micro_steps : {1, 2}) {
        for (const auto dtype : {torch::kFloat, torch::kDouble}) {
          expect_sums_over_replicas(grid, {bucket_bytes, micro_steps, dtype});
        }
      }
    }
  }
}

/// Probe P7: one whole scalar and one expert scalar per rank, all gradients 1.
void counts_each_parameter_once_in_the_norm(std::unique_ptr<Communicator> world) {
  const int64_t size = world->size();
  const std::vector<int64_t> units{world->rank()};
  RankGrid grid = make_rank_grid(std::move(world), size);
  const std::vector<Parameter> parameters{make_parameter("w", {1}),
                                          make_parameter("experts.*.w", {1}, &units)};
  const auto groups = group_parameters(parameters, grid);
  for (const Parameter& parameter : parameters) {
    parameter.tensor.mutable_grad() = at::ones_like(parameter.tensor).detach();
  }
  EXPECT_EQ(agreed_norm(groups, grid), std::sqrt(1.0 + static_cast<double>(size)));
  EXPECT_EQ(global_max_norm(share_of(groups), *grid.world), 1.0);
}

void agrees_on_the_flags_of_a_step(std::unique_ptr<Communicator> world) {
  const int64_t rank = world->rank();
  const int64_t last = world->size() - 1;
  RankGrid grid = make_rank_grid(std::move(world), 1);
  StepControl control(grid);

  StepFlags quiet;
  quiet.written_step = 3;
  const StepFlags nothing = control.agree(quiet);
  EXPECT_FALSE(nothing.wants_stop());
  EXPECT_FALSE(nothing.log_layers);
  EXPECT_EQ(nothing.square_sum, 0.0);
  EXPECT_EQ(nothing.written_step, 3);

  StepFlags own;
  own.stop_signal = rank == last ? 15 : 0;
  own.stop = rank == 0;
  own.evaluate = rank == last;
  own.log = rank == 0;
  own.log_layers = rank == last;
  own.written_step = 40 + rank;
  own.square_sum = std::exp2(rank);
  const StepFlags agreed = control.agree(own);
  EXPECT_EQ(agreed.stop_signal, 15);
  EXPECT_TRUE(agreed.stop);
  EXPECT_TRUE(agreed.evaluate);
  EXPECT_TRUE(agreed.log);
  EXPECT_TRUE(agreed.log_layers);
  EXPECT_FALSE(agreed.save);
  EXPECT_EQ(agreed.written_step, 40);
  EXPECT_EQ(agreed.square_sum, std::exp2(last + 1) - 1);

  // One that is not finite makes the sum so.
  own = {};
  own.square_sum = rank == last ? std::numeric_limits<double>::quiet_NaN() : 1.0;
  EXPECT_TRUE(std::isnan(control.agree(own).square_sum));
}

}  // namespace

Tensor wave(at::IntArrayRef sizes, int64_t rank) {
  const int64_t numel = c10::multiply_integers(sizes);
  return at::arange(numel, torch::kDouble).mul(1.3).add(0.7 * rank + 0.2).sin().reshape(sizes);
}

double agreed_norm(const std::vector<ParameterGroup>& groups, RankGrid& grid) {
  StepControl control(grid);
  StepFlags own;
  own.square_sum = gradient_stats(share_of(groups)).square_sum;
  return std::sqrt(control.agree(own).square_sum);
}

Parameter make_parameter(const std::string& name, std::vector<int64_t> sizes,
                         const std::vector<int64_t>* unit_ids, at::ScalarType dtype) {
  Parameter parameter{name, {}, 0, {}, {}};
  if (unit_ids != nullptr) {
    parameter.stacked_dims = 1;
    parameter.unit_ids = *unit_ids;
    sizes.insert(sizes.begin(), static_cast<int64_t>(unit_ids->size()));
  }
  parameter.tensor = at::zeros(sizes, dtype).set_requires_grad(true);
  return parameter;
}

void expect_true_gradient(Communicator& world, const Tensor& x,
                          const std::function<Tensor(const Tensor&)>& loss) {
  const Tensor leaf = x.clone().set_requires_grad(true);
  loss(leaf).backward();
  const Tensor gradient = leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf);

  const Tensor numel = at::full({world.size()}, 0, torch::kLong);
  world.start_all_gather(at::full({1}, x.numel(), torch::kLong), numel, RowCounts(world.size(), 1))
      .wait();
  const auto loss_at = [&](int64_t rank, int64_t element, double shift) {
    torch::NoGradGuard no_grad;
    const Tensor moved = x.clone();
    if (rank == world.rank()) moved.view({-1})[element] += shift;
    const Tensor sum = loss(moved).detach().clone();
    all_reduce(world, sum);
    return sum.item<double>();
  };
  const double step = 1e-5;  // errors: step^2 of the third derivative, epsilon / step of rounding
  for (int64_t rank = 0; rank < world.size(); ++rank) {
    for (int64_t i = 0; i < numel[rank].item<int64_t>(); ++i) {
      const double slope = (loss_at(rank, i, step) - loss_at(rank, i, -step)) / (2 * step);
      if (rank == world.rank()) {
        EXPECT_NEAR(gradient.view({-1})[i].item<double>(), slope, 1e-8) << "element " << i;
      }
    }
  }
}

const std::vector<ParallelCheck>& parallel_checks() {
  static const std::vector<ParallelCheck> checks = {
      {"DifferentiatesAllToAll", differentiates_all_to_all},
      {"DifferentiatesOverlappingExchanges", differentiates_overlapping_exchanges},
      {"DifferentiatesAllReduce", differentiates_all_reduce},
      {"SumsGradientsOverTheReplicasOnly", sums_gradients_over_the_replicas_only},
      {"CountsEachParameterOnceInTheNorm", counts_each_parameter_once_in_the_norm},
      {"AgreesOnTheFlagsOfAStep", agrees_on_the_flags_of_a_step},
  };
  return checks;
}

}  // namespace shoal::testing
