#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "moe/exchange/row_exchange.h"

namespace shoal {

/// The exchange in two levels, for expert ranks on more than one node.
///
/// A token goes once to each node that holds a unit of its choice, to the rank there that has its
/// own rank's place on the node, with its combine weights. That rank spreads the rows over its
/// node, adds the results up, weighted, and sends one row back; the token's rank adds up the
/// nodes'. So between nodes travels one row a (token, other node) and direction. Padding rows stay
/// at home. Sums over a token's units go node by node, so that they may round otherwise than in the
/// flat exchange; a node's partial sum is rounded to `payload` on its way. Source: DeepSeek-V3,
/// section 3.2.2.
std::vector<std::unique_ptr<RowExchange>> plan_node_exchange(
    const std::vector<TokenAssignments>& chunks, const UnitPlacement& placement,
    const RankGrid& grid, Payload payload);

}  // namespace shoal
