#include "runtime/module/module.h"

#include <algorithm>

namespace shoal {
namespace {

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

enum class Which { kParameters, kBuffers };

void collect(const torch::nn::Module& module, Which which, const std::string& path,
             std::vector<Parameter>& found) {
  const auto* base = dynamic_cast<const ModuleBase*>(&module);
  const auto items = which == Which::kParameters ? module.named_parameters(/*recurse=*/false)
                                                 : module.named_buffers(/*recurse=*/false);
  for (const auto& item : items) {
    TORCH_CHECK(base != nullptr, "tensor ", join(path, item.key()),
                " belongs to a module that is not a shoal::ModuleBase");
    const ModuleBase::Spec& spec = base->spec(item.key());
    const std::string own_path = spec.is_stacked ? join(path, "*") : path;
    found.push_back({join(own_path, spec.name), item.value(), spec.is_stacked ? 1 : 0,
                     spec.unit_ids, spec.init});
  }
  for (const auto& child : module.named_children()) {
    collect(*child.value(), which, join(path, child.key()), found);
  }
}

/// torch refuses dots in names.
std::string torch_key(std::string name) {
  std::replace(name.begin(), name.end(), '.', '/');
  return name;
}

}  // namespace

const ModuleBase::Spec& ModuleBase::spec(const std::string& key) const {
  for (const auto& [known, spec] : specs_) {
    if (known == key) return spec;
  }
  TORCH_CHECK(false, "no tensor ", key, " was added to this module");
}

torch::Tensor ModuleBase::add(Spec spec, at::IntArrayRef sizes,
                              const torch::TensorOptions& options) {
  const std::string key = torch_key(spec.name);
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
  std::vector<int64_t> stacked{std::ssize(unit_ids)};
  stacked.insert(stacked.end(), sizes.begin(), sizes.end());
  return add({name, init, unit_ids, true}, stacked, options);
}

torch::Tensor ModuleBase::add_buffer(const std::string& name, at::IntArrayRef sizes,
                                     const torch::TensorOptions& options, const Init& init) {
  specs_.emplace_back(torch_key(name), Spec{name, init, {}, false});
  return register_buffer(torch_key(name), torch::empty(sizes, options));
}

std::vector<Parameter> parameters_of(const torch::nn::Module& root, const std::string& prefix) {
  std::vector<Parameter> found;
  collect(root, Which::kParameters, prefix, found);
  return found;
}

std::vector<Parameter> buffers_of(const torch::nn::Module& root, const std::string& prefix) {
  std::vector<Parameter> found;
  collect(root, Which::kBuffers, prefix, found);
  return found;
}

}  // namespace shoal
