#include "runtime/module.h"

#include <algorithm>

namespace shoal {
namespace {

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

void collect(const torch::nn::Module& module, const std::string& path,
             std::vector<Parameter>& found) {
  const auto* base = dynamic_cast<const ModuleBase*>(&module);
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    TORCH_CHECK(base != nullptr, "parameter ", join(path, item.key()),
                " belongs to a module that is not a shoal::ModuleBase");
    const ModuleBase::Spec& spec = base->spec(item.key());
    const std::string own_path = spec.is_stacked ? join(path, "*") : path;
    found.push_back({join(own_path, spec.name), item.value(), spec.is_stacked ? 1 : 0,
                     spec.unit_ids, spec.init});
  }
  for (const auto& child : module.named_children()) {
    collect(*child.value(), join(path, child.key()), found);
  }
}

}  // namespace

const ModuleBase::Spec& ModuleBase::spec(const std::string& key) const {
  for (const auto& [known, spec] : specs_) {
    if (known == key) return spec;
  }
  TORCH_CHECK(false, "no parameter ", key, " was added to this module");
}

torch::Tensor ModuleBase::add(Spec spec, at::IntArrayRef sizes,
                              const torch::TensorOptions& options) {
  std::string key = spec.name;  // torch refuses dots
  std::replace(key.begin(), key.end(), '.', '/');
  specs_.emplace_back(key, std::move(spec));
  return register_parameter(key, torch::empty(sizes, options));
}

torch::Tensor ModuleBase::add_parameter(const std::string& name, at::IntArrayRef sizes,
                                        const torch::TensorOptions& options, const Init& init) {
  return add({name, init, {}, false}, sizes, options);
}

torch::Tensor ModuleBase::add_stacked_parameter(const std::string& name, at::IntArrayRef sizes,
                                                const torch::TensorOptions& options,
                                                const Init& init,
                                                const std::vector<int64_t>& unit_ids) {
  std::vector<int64_t> stacked{static_cast<int64_t>(unit_ids.size())};
  stacked.insert(stacked.end(), sizes.begin(), sizes.end());
  return add({name, init, unit_ids, true}, stacked, options);
}

std::vector<Parameter> parameters_of(const torch::nn::Module& root, const std::string& prefix) {
  std::vector<Parameter> found;
  collect(root, prefix, found);
  return found;
}

}  // namespace shoal
