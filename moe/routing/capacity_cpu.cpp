#include <ATen/Dispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "moe/routing/capacity.h"

// T tokens  K choices per token  U units  G routing groups
namespace shoal {
namespace {

template <class Real>
struct Choices {
  const int64_t* unit_TK;
  const Real* score_TK;
  const Real* priority_T;  // batch priority only
  int64_t k, num_units;
  CapacityOrder order;

  static Real or_least(Real value) {
    return std::isnan(value) ? -std::numeric_limits<Real>::infinity() : value;
  }
  Real score(int64_t choice) const { return or_least(score_TK[choice]); }
  Real priority(int64_t choice) const { return or_least(priority_T[choice / k]); }
  /// Whether choice a takes its place in a unit before choice b. `choice` orders by token, then by
  /// rank of the choice, which settles every tie.
  bool goes_before(int64_t a, int64_t b) const {
    if (order == CapacityOrder::kProbability && score(a) != score(b)) return score(a) > score(b);
    if (order == CapacityOrder::kSlotMajor || order == CapacityOrder::kBatchPriority) {
      if (a % k != b % k) return a % k < b % k;
    }
    if (order == CapacityOrder::kBatchPriority) {
      const Real first_a = priority(a), first_b = priority(b);
      if (first_a != first_b) return first_a > first_b;
    }
    return a < b;
  }
};

/// Choices of one group sorted by unit, in token order within a unit.
struct GroupedChoices {
  std::vector<int64_t> choice;    // the choices, unit after unit
  std::vector<int64_t> first_U1;  // where each unit's run begins
  int64_t num_tokens = 0;         // tokens with a choice left

  void sort(const int64_t* unit_TK, int64_t k, int64_t begin, int64_t end, int64_t num_units) {
    first_U1.assign(static_cast<size_t>(num_units) + 1, 0);
    num_tokens = 0;
    for (int64_t token = begin; token < end; ++token) {
      bool has_choice = false;
      for (int64_t c = token * k; c < (token + 1) * k; ++c) {
        if (unit_TK[c] < 0) continue;
        TORCH_CHECK(unit_TK[c] < num_units, "unit ", unit_TK[c], " of ", num_units);
        ++first_U1[static_cast<size_t>(unit_TK[c]) + 1];
        has_choice = true;
      }
      num_tokens += has_choice ? 1 : 0;
    }
    std::partial_sum(first_U1.begin(), first_U1.end(), first_U1.begin());
    choice.resize(static_cast<size_t>(first_U1.back()));
    std::vector<int64_t> next(first_U1.begin(), first_U1.end() - 1);
    for (int64_t c = begin * k; c < end * k; ++c) {
      if (unit_TK[c] < 0) continue;
      choice[static_cast<size_t>(next[static_cast<size_t>(unit_TK[c])]++)] = c;
    }
  }
};

/// What survives: for each unit, group after group, the kept choices in token order.
struct Survivors {
  std::vector<std::vector<int64_t>> choice_U;
  int64_t num_kept = 0;
};

/// Capacity of a group, and the width that padding fills up to (0: none).
struct Width {
  int64_t limit, padded;
};

Width width_of(const Capacity& capacity, int64_t num_tokens, int64_t k, int64_t num_units) {
  if (capacity.mode == CapacityMode::kDropless) return {std::numeric_limits<int64_t>::max(), 0};
  const int64_t limit = unit_capacity(num_tokens * k, num_units, capacity);
  return {limit, capacity.mode == CapacityMode::kPadded ? limit : 0};
}

template <class Real>
void keep_group(const Choices<Real>& choices, GroupedChoices& group, const Width& width,
                Survivors& survivors) {
  for (int64_t unit = 0; unit < choices.num_units; ++unit) {
    const auto run = group.choice.begin() + group.first_U1[static_cast<size_t>(unit)];
    auto end = group.choice.begin() + group.first_U1[static_cast<size_t>(unit) + 1];
    if (end - run > width.limit) {
      const auto cut = run + width.limit;
      std::nth_element(run, cut, end,
                       [&](int64_t a, int64_t b) { return choices.goes_before(a, b); });
      std::sort(run, cut);
      end = cut;
    }
    auto& kept = survivors.choice_U[static_cast<size_t>(unit)];
    kept.insert(kept.end(), run, end);
    survivors.num_kept += end - run;
    const int64_t missing = width.padded - (end - run);
    if (missing > 0) kept.insert(kept.end(), static_cast<size_t>(missing), -1);
  }
}

std::vector<torch::Tensor> as_tensors(const Survivors& survivors, int64_t k) {
  const auto num_units = static_cast<int64_t>(survivors.choice_U.size());
  torch::Tensor rows_U = torch::empty({num_units}, torch::kInt64);
  int64_t total = 0;
  for (int64_t unit = 0; unit < num_units; ++unit) {
    const auto rows = static_cast<int64_t>(survivors.choice_U[static_cast<size_t>(unit)].size());
    rows_U.data_ptr<int64_t>()[unit] = rows;
    total += rows;
  }
  torch::Tensor choice_A = torch::empty({total}, torch::kInt64);
  torch::Tensor token_A = torch::empty({total}, torch::kInt64);
  int64_t* choice = choice_A.data_ptr<int64_t>();
  int64_t* token = token_A.data_ptr<int64_t>();
  for (const auto& kept : survivors.choice_U) {
    choice = std::copy(kept.begin(), kept.end(), choice);
    token = std::transform(kept.begin(), kept.end(), token,
                           [k](int64_t c) { return c < 0 ? -1 : c / k; });
  }
  return {token_A, choice_A, rows_U, torch::scalar_tensor(survivors.num_kept, torch::kInt64)};
}

/// Without a limit all tokens are one group.
std::vector<int64_t> groups_of(const Capacity& capacity, c10::IntArrayRef offsets) {
  if (capacity.mode == CapacityMode::kDropless) return {offsets.front(), offsets.back()};
  return offsets.vec();
}

std::vector<torch::Tensor> assign_rows_cpu(const torch::Tensor& unit_TK,
                                           const torch::Tensor& score_TK,
                                           const std::optional<torch::Tensor>& priority_T,
                                           c10::IntArrayRef group_offsets, int64_t num_units,
                                           int64_t mode, int64_t order, double factor, int64_t min,
                                           int64_t align) {
  const Capacity capacity{static_cast<CapacityMode>(mode), factor, min, align,
                          static_cast<CapacityOrder>(order)};
  const int64_t k = unit_TK.size(1);
  const std::vector<int64_t> offsets = groups_of(capacity, group_offsets);
  Survivors survivors;
  survivors.choice_U.resize(static_cast<size_t>(num_units));
  AT_DISPATCH_FLOATING_TYPES(score_TK.scalar_type(), "assign_rows", [&] {
    const Choices<scalar_t> choices{unit_TK.const_data_ptr<int64_t>(),
                                    score_TK.const_data_ptr<scalar_t>(),
                                    priority_T ? priority_T->const_data_ptr<scalar_t>() : nullptr,
                                    k,
                                    num_units,
                                    capacity.order};
    GroupedChoices group;
    for (size_t g = 0; g + 1 < offsets.size(); ++g) {
      group.sort(choices.unit_TK, k, offsets[g], offsets[g + 1], num_units);
      keep_group(choices, group, width_of(capacity, group.num_tokens, k, num_units), survivors);
    }
  });
  return as_tensors(survivors, k);
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) { m.impl("assign_rows", assign_rows_cpu); }

}  // namespace shoal
