#pragma once

namespace shoal {

/// Largest sizes that recipes may set, far above any model. The bytes of a layer's weights, units
/// times two widths, fit in 64 bits. Unit: an expert or a memory unit (a table of keys and values).
inline constexpr double kMostWidth = 1 << 20;     ///< hidden widths, heads, sides of patches
inline constexpr double kMostUnits = 1 << 16;     ///< units of a layer
inline constexpr int kMostUnitsOnGpu = 6000;      ///< units per router; 8 B of shared memory each
inline constexpr double kMostCapacity = 1 << 20;  ///< rows of an expert from one routing group
inline constexpr double kMostBlocks = 1 << 12;    ///< blocks of a network

}  // namespace shoal
