#include "moe/exchange/dispatch_plan.h"

#include <torch/library.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "moe/exchange/dispatch_plan_cuda.h"
#include "runtime/device/device_copy.h"
#include "runtime/device/operator.h"

// A rows this rank sends  R rows it receives  U units  V units in the order of their ranks
// u units on this rank  E ranks  C pieces
namespace shoal {
namespace {

torch::Tensor exclusive_sum(const torch::Tensor& counts) { return counts.cumsum(0) - counts; }

torch::Tensor inverse_of(const torch::Tensor& order) {
  return torch::empty_like(order).scatter_(0, order, torch::arange(order.size(0), order.options()));
}

/// Marks the units of part `part` of each rank's with 1, others with 0.
std::vector<int64_t> units_of_part(const UnitPlacement& placement, int64_t part,
                                   int64_t num_parts) {
  std::vector<int64_t> is_taken_U(static_cast<size_t>(placement.num_units()), 0);
  for (int64_t rank = 0; rank < placement.num_ranks(); ++rank) {
    const std::vector<int64_t>& units = placement.units_of_rank(rank);
    const UnitRange range = part_of(static_cast<int64_t>(units.size()), part, num_parts);
    for (int64_t i = range.first; i < range.first + range.count; ++i) {
      is_taken_U[static_cast<size_t>(units[static_cast<size_t>(i)])] = 1;
    }
  }
  return is_taken_U;
}

/// Sets the order in which the piece's rows are sent. A token's rows stay listed by unit, so that
/// sums over them do not depend on the placement.
void set_order(DispatchPlan& plan, const Piece& piece, const UnitPlacement& placement) {
  const TokenAssignments& chunk = piece.assignments;
  const int64_t num_rows = sum(plan.send_rows);
  const torch::Tensor rows_U = piece.rows_U();
  if (piece.taken_U.defined()) {
    plan.order_A = indices_of_runs(exclusive_sum(chunk.rows_U), rows_U, num_rows);
    plan.index = make_row_index(chunk.token_A.index_select(0, plan.order_A), chunk.num_tokens);
  } else {
    plan.index = piece.index.token_A.defined() ? piece.index
                                               : make_row_index(chunk.token_A, chunk.num_tokens);
    // Without trailing padding rows.
    plan.index.token_A = plan.index.token_A.narrow(0, 0, num_rows);
    plan.index.row_A = plan.index.row_A.slice(0, 0, num_rows);
  }
  if (placement.is_contiguous()) return;
  const torch::Tensor unit_V = send_to(placement.units_by_rank(), rows_U.device());
  const torch::Tensor by_rank_A = indices_of_runs(exclusive_sum(rows_U).index_select(0, unit_V),
                                                  rows_U.index_select(0, unit_V), num_rows);
  plan.index.token_A = plan.index.token_A.index_select(0, by_rank_A);
  plan.index.row_A = inverse_of(by_rank_A).index_select(0, plan.index.row_A);
  plan.order_A = plan.order_A.defined() ? plan.order_A.index_select(0, by_rank_A) : by_rank_A;
}

/// Sets what lay_out and sort_by_unit set, by one kernel.
void place_rows(DispatchPlan& plan, const torch::Tensor& count_Eu, const PackedType& type) {
  using Tensor = torch::Tensor;
  static const Operator<std::vector<Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                            c10::IntArrayRef, c10::IntArrayRef, c10::IntArrayRef)>
      op("shoal::place_rows");
  const std::vector<Tensor> lists =
      op(plan.index.token_A, plan.index.row_A, count_Eu.contiguous(), plan.send_rows,
         plan.recv_rows, {type.row_bytes(), type.weight_bytes()});
  plan.to_send = {type, lists[2], lists[0].size(0), {lists[0], plan.index.first_T1, lists[1]}};
  plan.received = {type, lists[5], lists[3].size(0), {}, lists[4], lists[3]};
  plan.to_units_R = lists[6];
  plan.to_arrival_R = lists[7];
  plan.rows_u = UnitRows(plan.rows_u.rows_u(), lists[8]);
}

/// Sets how the rows that arrive are sorted by unit. `count_Eu`: rows that arrive, where they do.
void sort_by_unit(DispatchPlan& plan, const torch::Tensor& count_Eu) {
  const torch::Tensor first_Eu = exclusive_sum(count_Eu.flatten()).view(count_Eu.sizes());
  plan.to_units_R =
      indices_of_runs(first_Eu.t().flatten(), count_Eu.t().flatten(), sum(plan.recv_rows));
  plan.to_arrival_R = inverse_of(plan.to_units_R);
}

/// `device_Eu`: count_Eu where the rows are.
void set_arrival(DispatchPlan& plan, const std::vector<int64_t>& count_Eu,
                 const torch::Tensor& device_Eu, const PackedType& type) {
  const auto num_units = static_cast<size_t>(device_Eu.size(1));
  std::vector<int64_t> rows_u(num_units, 0);
  bool is_sorted = true;  // rows arrive by (rank, unit)
  for (size_t block = 0, last = 0; block < count_Eu.size(); ++block) {
    if (count_Eu[block] == 0) continue;
    const size_t unit = block % num_units;
    rows_u[unit] += count_Eu[block];
    is_sorted = is_sorted && unit >= last;
    last = unit;
  }
  plan.rows_u = std::move(rows_u);
  if (device_Eu.is_cuda() && device_Eu.size(0) <= dispatch_plan_cuda::kMostRanks &&
      device_Eu.numel() <= dispatch_plan_cuda::kMostBlocks) {
    place_rows(plan, device_Eu, type);
    if (is_sorted) plan.to_units_R = plan.to_arrival_R = torch::Tensor();
    return;
  }
  if (!is_sorted) sort_by_unit(plan, device_Eu);
  lay_out(plan, type);
}

}  // namespace

torch::Tensor Piece::rows_U() const {
  return taken_U.defined() ? assignments.rows_U * taken_U : assignments.rows_U;
}

std::vector<Piece> cut_into_pieces(const std::vector<TokenAssignments>& chunks,
                                   const UnitPlacement& placement, int64_t num_parts) {
  std::vector<Piece> pieces;
  for (const TokenAssignments& chunk : chunks) {
    TORCH_CHECK(chunk.rows_U.size(0) == placement.num_units(), "dispatch: ", chunk.rows_U.size(0),
                " units in the assignments, ", placement.num_units(), " placed");
    for (int64_t part = 0; part < num_parts; ++part) {
      Piece& piece = pieces.emplace_back(Piece{chunk, {}, {}});
      if (num_parts == 1) continue;
      piece.is_taken_U = units_of_part(placement, part, num_parts);
      piece.taken_U = send_to(piece.is_taken_U, chunk.rows_U.device());
    }
  }
  return pieces;
}

torch::Tensor rows_to_send(const std::vector<Piece>& pieces, const UnitPlacement& placement) {
  std::vector<torch::Tensor> rows_CU;
  for (const Piece& piece : pieces) rows_CU.push_back(piece.rows_U());
  const torch::Tensor all_CU =
      rows_CU.size() == 1 ? rows_CU.front().unsqueeze(0) : torch::stack(rows_CU);
  if (placement.is_contiguous()) return all_CU;
  return all_CU.index_select(1, send_to(placement.units_by_rank(), all_CU.device()));
}

bool has_known_counts(const std::vector<Piece>& pieces) {
  return std::all_of(pieces.begin(), pieces.end(),
                     [](const Piece& piece) { return !piece.assignments.rows_per_unit_E.empty(); });
}

DispatchCounts known_counts(const std::vector<Piece>& pieces, const UnitPlacement& placement,
                            int64_t rank) {
  const auto add = [](std::vector<int64_t>& counts, const Piece& piece, int64_t rows,
                      const std::vector<int64_t>& units) {
    for (const int64_t unit : units) {
      const bool is_taken =
          piece.is_taken_U.empty() || piece.is_taken_U[static_cast<size_t>(unit)] > 0;
      counts.push_back(is_taken ? rows : 0);
    }
  };
  DispatchCounts counts;
  for (const Piece& piece : pieces) {
    const TokenAssignments& chunk = piece.assignments;
    const int64_t rows = chunk.rows_per_unit_E[static_cast<size_t>(rank)];
    TORCH_CHECK(!chunk.rows_U.is_cpu() || chunk.rows_U.eq(rows).all().item<bool>(),
                "dispatch: units have ", chunk.rows_U, " rows, rows_per_unit_E announced ", rows);
    add(counts.sent_CV, piece, rows, placement.units_by_rank());
  }
  const std::vector<int64_t>& own_units = placement.units_of_rank(rank);
  for (size_t source = 0; source < static_cast<size_t>(placement.num_ranks()); ++source) {
    for (const Piece& piece : pieces) {
      add(counts.received_ECu, piece, piece.assignments.rows_per_unit_E[source], own_units);
    }
  }
  counts.device_ECu = send_to(counts.received_ECu, pieces.front().assignments.rows_U.device())
                          .view({placement.num_ranks(), static_cast<int64_t>(pieces.size()),
                                 static_cast<int64_t>(own_units.size())});
  return counts;
}

void index_rows(Piece& piece) {
  if (piece.taken_U.defined()) return;
  piece.index = make_row_index(piece.assignments.token_A, piece.assignments.num_tokens);
}

std::vector<DispatchPlan> make_plans(const std::vector<Piece>& pieces,
                                     const UnitPlacement& placement, const DispatchCounts& counts,
                                     const PackedType& type) {
  const auto num_pieces = static_cast<int64_t>(pieces.size());
  const int64_t own_units = counts.device_ECu.size(2);
  std::vector<DispatchPlan> plans(pieces.size());
  auto sent = counts.sent_CV.begin();
  for (int64_t piece = 0; piece < num_pieces; ++piece) {
    DispatchPlan& plan = plans[static_cast<size_t>(piece)];
    for (const int64_t units : placement.num_units_of_ranks()) {
      plan.send_rows.push_back(std::accumulate(sent, sent + units, int64_t{0}));
      sent += units;
    }
    std::vector<int64_t> count_Eu;
    for (int64_t rank = 0; rank < placement.num_ranks(); ++rank) {
      const auto first = counts.received_ECu.begin() + (rank * num_pieces + piece) * own_units;
      plan.recv_rows.push_back(std::accumulate(first, first + own_units, int64_t{0}));
      count_Eu.insert(count_Eu.end(), first, first + own_units);
    }
    plan.send_weights = plan.send_rows;
    plan.recv_weights = plan.recv_rows;
    set_order(plan, pieces[static_cast<size_t>(piece)], placement);
    set_arrival(plan, count_Eu, counts.device_ECu.select(1, piece), type);
  }
  return plans;
}

void lay_out(DispatchPlan& plan, const PackedType& type) {
  const torch::Device device = plan.index.token_A.device();
  plan.to_send =
      layout_to_send(packed_layout(plan.send_rows, plan.send_weights, type, device), plan.index);
  plan.received = packed_layout(plan.recv_rows, plan.recv_weights, type, device, plan.to_units_R);
}

DispatchPlan plan_on_one_rank(const TokenAssignments& assignments) {
  DispatchPlan plan;
  plan.index = make_row_index(assignments.token_A, assignments.num_tokens);
  plan.send_rows = plan.recv_rows = {assignments.token_A.size(0)};
  plan.send_weights = plan.recv_weights = plan.send_rows;
  if (!assignments.rows_U.is_cpu()) {
    plan.rows_u = UnitRows(assignments.rows_U);
    return plan;
  }
  const torch::Tensor rows_U = assignments.rows_U.contiguous();
  const int64_t* first = rows_U.const_data_ptr<int64_t>();
  plan.rows_u = std::vector<int64_t>(first, first + rows_U.numel());
  return plan;
}

torch::Tensor weights_to_send(const torch::Tensor& weight_A, const DispatchPlan& plan) {
  if (plan.order_A.defined()) return weight_A.index_select(0, plan.order_A);
  const int64_t count = sum(plan.send_weights);
  return weight_A.size(0) == count ? weight_A : weight_A.narrow(0, 0, count);
}

TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def(
      "place_rows(Tensor token, Tensor row, Tensor count, int[] sent, int[] received, int[] bytes) "
      "-> Tensor[]");
}

}  // namespace shoal
