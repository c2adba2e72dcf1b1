#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "moe/exchange/row_exchange.h"

namespace shoal {

/// The exchange in two levels, for expert ranks on more than one node.
///
/// A token is sent once to each node that holds units it is routed to, with its combine weights: to
/// the rank at its own rank's place on that node. That rank dispatches the rows inside its node,
/// sums the weighted outputs and sends one row back; the token's rank sums over nodes. So each
/// (token, other node) costs one row between nodes in each direction. Padding rows stay at home.
/// Sums over a token's units go node by node, so they may round differently from the flat exchange;
/// a node's partial sum is sent as `payload`. Source: DeepSeek-V3, section 3.2.2.
std::vector<std::unique_ptr<RowExchange>> plan_node_exchange(
    const std::vector<TokenAssignments>& chunks, const UnitPlacement& placement,
    const RankGrid& grid, Payload payload);

}  // namespace shoal
