#include "runtime/options/automatic_values.h"

#include <vector>

#include "runtime/options/registry.h"

namespace shoal::config {
namespace {

struct Resolver {
  ResolvedOn when;
  const Type& (*type)();
  Resolve resolve;
};

std::vector<Resolver>& resolvers() {
  static std::vector<Resolver> all;
  return all;
}

}  // namespace

void add_resolver(ResolvedOn when, const Type& (*type)(), Resolve resolve) {
  resolvers().push_back({when, type, resolve});
}

void resolve(ResolvedOn when, const Type& type, void* object) {
  for (const Resolver& resolver : resolvers()) {
    if (resolver.when == when && &resolver.type() == &type) resolver.resolve(object);
  }
}

void resolve_all(ResolvedOn when, const Type& type, void* object) {
  visit_all(type, object,
            [when](const Type& inner, void* options) { resolve(when, inner, options); });
}

}  // namespace shoal::config
