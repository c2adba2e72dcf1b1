#pragma once

namespace shoal {

/// Largest sizes that recipes may set: far above any model, and low enough that the bytes of units
/// times two widths fit in 64 bits.
inline constexpr double kMostWidth = 1 << 20;
inline constexpr double kMostUnits = 1 << 16;
inline constexpr int kMostUnitsOnGpu = 6000;      ///< with a router: 8 bytes of shared memory each
inline constexpr double kMostCapacity = 1 << 20;  ///< rows of a unit and routing group
inline constexpr double kMostBlocks = 1 << 12;

}  // namespace shoal
