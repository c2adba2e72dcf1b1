#include "runtime/device/process_parts.h"

namespace shoal {
namespace {

/// Tests run as `shoal` does.
const bool has_parts = (use_process_parts(), true);

}  // namespace
}  // namespace shoal
