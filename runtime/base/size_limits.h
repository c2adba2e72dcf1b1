#pragma once

namespace shoal {

/// Largest sizes that recipes may ask for: far above any model, and low enough that the product of
/// a number of units and two widths is a number of bytes.
inline constexpr double kMostWidth = 1 << 20;
inline constexpr double kMostUnits = 1 << 16;
inline constexpr int kMostUnitsOnGpu = 6000;  ///< behind a router: 8 bytes of each in shared memory
inline constexpr double kMostCapacity = 1 << 20;  ///< rows of a unit and routing group
inline constexpr double kMostBlocks = 1 << 12;

}  // namespace shoal
