#include "runtime/options/automatic_values.h"

#include <cstddef>
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

void visit_all(const Type& type, void* object,
               const std::function<void(const Type& type, void* object)>& visit) {
  if (type.kind == Kind::kOptional || type.kind == Kind::kList) {
    for (std::size_t i = 0; i < type.size(object); ++i) {
      visit_all(type.element(), const_cast<void*>(type.at(object, i)), visit);
    }
  }
  if (type.kind == Kind::kChoice) {
    auto& choice = const_cast<ChoiceValue&>(type.choice(object));
    if (choice.is_empty()) return;
    visit_all(choice.member()->options_type(), choice.erased_options(), visit);
  }
  for (const FieldInfo& field : type.fields) visit_all(field.type(), field.member(object), visit);
  visit(type, object);
}

void resolve_all(ResolvedOn when, const Type& type, void* object) {
  visit_all(type, object,
            [when](const Type& inner, void* options) { resolve(when, inner, options); });
}

}  // namespace shoal::config
