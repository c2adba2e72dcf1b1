#include "runtime/device/process_parts.h"

namespace shoal {

ProcessParts& process_parts() {
  static ProcessParts parts;
  return parts;
}

}  // namespace shoal
