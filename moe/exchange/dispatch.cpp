#include "moe/exchange/dispatch.h"

#include <utility>

// T tokens  D width  W combine weights sent  R rows received  B choices that arrive from nodes
namespace shoal {
namespace {

torch::Tensor as_sent(const torch::Tensor& rows, Payload payload) {
  return payload == Payload::kBfloat16 ? rows.to(torch::kBFloat16) : rows;
}

/// The second half of a dispatch on one level.
Dispatched receive(DispatchInFlight flight, const RowRoute::Level& level) {
  const DispatchPlan& plan = level.plan;
  const torch::Tensor received = finish_all_to_all(std::move(flight.started));
  if (level.comm->size() == 1) return {received.to(flight.dtype), plan.rows_u, flight.weight_W};
  const auto [rows_RD, weight_R] = unpack_rows(received, flight.dtype, plan.received);
  return {rows_RD, plan.rows_u, weight_R};
}

/// The first half of a combine on one level.
CombineInFlight send_back(const torch::Tensor& rows_RD, const RowRoute::Level& level) {
  const DispatchPlan& plan = level.plan;
  const torch::Tensor arrived_RD = plan.to_units_R.defined()
                                       ? permute_rows(rows_RD, plan.to_arrival_R, plan.to_units_R)
                                       : rows_RD;
  return {start_all_to_all(as_sent(arrived_RD, level.payload), plan.recv_rows, plan.send_rows,
                           *level.comm),
          rows_RD.scalar_type()};
}

}  // namespace

Dispatched dispatch(const torch::Tensor& x_TD, const torch::Tensor& weight_A,
                    const RowRoute& route) {
  return finish_dispatch(start_dispatch(x_TD, weight_A, route.first), route);
}

torch::Tensor combine(const torch::Tensor& weighted_RD, const RowRoute& route) {
  return finish_combine(start_combine(weighted_RD, route), route.first);
}

DispatchInFlight start_dispatch(const torch::Tensor& x_TD, const torch::Tensor& weight_A,
                                const RowRoute::Level& first) {
  const DispatchPlan& plan = first.plan;
  const torch::Tensor weight_W = weights_to_send(weight_A, plan);
  if (first.comm->size() == 1) {
    return {start_all_to_all(as_sent(gather_rows(x_TD, plan.index), first.payload), plan.send_rows,
                             plan.recv_rows, *first.comm),
            x_TD.scalar_type(), weight_W};
  }
  const PackedType& type = plan.to_send.type;
  return {start_all_to_all(pack_rows(x_TD, weight_W, plan.to_send),
                           packed_counts(plan.send_rows, plan.send_weights, type),
                           packed_counts(plan.recv_rows, plan.recv_weights, type), *first.comm),
          x_TD.scalar_type(),
          {}};
}

Dispatched finish_dispatch(DispatchInFlight flight, const RowRoute& route) {
  const Dispatched arrived = receive(std::move(flight), route.first);
  if (!route.inside) return arrived;
  const torch::Tensor weight_B = arrived.weight_R.index_select(0, route.order_B);
  return receive(start_dispatch(arrived.rows_RD, weight_B, *route.inside), *route.inside);
}

CombineInFlight start_combine(const torch::Tensor& weighted_RD, const RowRoute& route) {
  if (!route.inside) return send_back(weighted_RD, route.first);
  const torch::Tensor pairs_RD =
      finish_combine(send_back(weighted_RD, *route.inside), *route.inside);
  return send_back(pairs_RD, route.first);
}

torch::Tensor finish_combine(CombineInFlight flight, const RowRoute::Level& first) {
  return sum_rows(finish_all_to_all(std::move(flight.started)).to(flight.dtype), first.plan.index);
}

}  // namespace shoal
