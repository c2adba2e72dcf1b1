#include "runtime/device/process_parts.h"

namespace shoal {
namespace {

constinit ProcessParts registered_parts;

}  // namespace

const ProcessParts& process_parts() { return registered_parts; }

void register_process_parts(const ProcessParts& parts) { registered_parts = parts; }

}  // namespace shoal
