#include "sparse/permutations/permutation.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include "runtime/base/error.h"
#include "runtime/device/autograd_function.h"
#include "runtime/random/random.h"

// u matrices of a stack  n permuted rows or columns  a, b a matrix as stored  G groups of s
namespace shoal {
namespace {

/// Reorders dimension `dim` of x by each matrix's index.
torch::Tensor reordered(const torch::Tensor& x_uab, int64_t dim, const torch::Tensor& index_un) {
  if (x_uab.size(0) == 1) return x_uab.index_select(dim, index_un[0]);
  std::vector<int64_t> sizes = x_uab.sizes().vec();
  return x_uab.gather(dim, index_un.unsqueeze(dim == 1 ? 2 : 1).expand(sizes));
}

/// Reorders by index. The gradient is read by the inverse, without atomic additions on a GPU.
struct Reorder : torch::autograd::Function<Reorder> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x_uab, int64_t dim,
                               const torch::Tensor& index_un, const torch::Tensor& inverse_un) {
    ctx->saved_data["dim"] = dim;
    ctx->save_for_backward({inverse_un});
    return reordered(x_uab, dim, index_un);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const torch::Tensor inverse_un = ctx->get_saved_variables()[0];
    return {reordered(grads[0], ctx->saved_data["dim"].toInt(), inverse_un), {}, {}, {}};
  }
};

}  // namespace

int64_t Permutation::Place::dim() const {
  return (axis == PermutationAxis::kInputs) == is_transposed ? -2 : -1;
}

Permutation::Permutation(const Place& place)
    : place_(place),
      num_matrices_(place.parameter.is_stacked() ? place.parameter.tensor.size(0) : 1) {
  set_index(at::arange(place_.size(), place_.parameter.tensor.options().dtype(torch::kInt64))
                .repeat({num_matrices_, 1}));
}

Stream Permutation::stream(int64_t matrix, uint64_t seed) const {
  const std::string name = kIndexPrefix + name_of_row(place_.parameter, matrix);
  return {seed, Purpose::kSparsePattern, hash_name(name), /*step=*/0};
}

void Permutation::shuffle(uint64_t seed) {
  const torch::Tensor& weight = place_.parameter.tensor;
  if (weight.is_meta()) return;
  const torch::Tensor score_un = torch::empty({num_matrices_, place_.size()}, weight.options());
  for (int64_t i = 0; i < num_matrices_; ++i) fill_uniform(score_un[i], stream(i, seed));
  set_index(score_un.argsort(/*stable=*/true, 1, /*descending=*/false));
}

torch::Tensor Permutation::allocate_soft() const {
  TORCH_CHECK(side() * groups_ == place_.size(), name(), ": ", groups_, " groups of ",
              place_.size());
  std::vector<int64_t> sizes = family_->shape(side());
  sizes.insert(sizes.begin(), {num_matrices_, groups_});
  return torch::empty(sizes, place_.parameter.tensor.detach().options());
}

void Permutation::soften(int64_t groups, double mix, uint64_t seed,
                         std::shared_ptr<const SoftFamily> family) {
  groups_ = groups;
  family_ = std::move(family);
  soft_ = allocate_soft();
  if (!soft_.is_meta()) {
    for (int64_t i = 0; i < num_matrices_; ++i) family_->fill(soft_[i], mix, stream(i, seed));
  }
  soft_.requires_grad_();
  index_un_ = inverse_un_ = torch::Tensor();
}

torch::Tensor Permutation::penalty() const {
  if (is_soft()) return family_->penalty(soft_.detach());
  return at::zeros({num_matrices_, groups_}, place_.parameter.tensor.detach().options());
}

int64_t Permutation::soft_bytes() const {
  if (!is_soft()) return 0;
  return groups_ * c10::multiply_integers(family_->shape(side())) *
         static_cast<int64_t>(soft_.element_size());
}

torch::Tensor Permutation::index() const {
  if (!is_soft()) return index_un_;
  const torch::Tensor index_uGs = family_->index(soft_.detach());
  const torch::Tensor begin_G1 = at::arange(groups_, index_uGs.options()).mul(side()).unsqueeze(1);
  return (index_uGs + begin_G1).flatten(1);
}

void Permutation::set_index(const torch::Tensor& index_un) {
  index_un_ = index_un;
  inverse_un_ = index_un.argsort(/*stable=*/true, 1, /*descending=*/false);
  soft_ = torch::Tensor();
}

torch::Tensor Permutation::distance() const {
  const auto n = static_cast<double>(place_.size());
  if (!is_soft()) {
    const torch::Tensor identity_n = at::arange(place_.size(), index_un_.options());
    const torch::Tensor moved_u = (index_un_ != identity_n).sum(1).to(torch::kFloat64);
    return (moved_u / n).sqrt();
  }
  return (family_->squared_distance(soft_.detach()) / (2.0 * n)).sqrt();
}

torch::Tensor Permutation::permuted(const torch::Tensor& x_uab) const {
  const bool is_left = place_.dim() == -2;  // P from the left of a stored matrix
  const bool are_inputs = place_.axis == PermutationAxis::kInputs;
  if (!is_soft()) {
    // Column j of S P is column i of S where p(i) = j, which takes the inverse order.
    const torch::Tensor& order = are_inputs ? inverse_un_ : index_un_;
    const torch::Tensor& back = are_inputs ? index_un_ : inverse_un_;
    return Reorder::apply(x_uab, is_left ? 1 : 2, order, back);
  }
  const int64_t u = x_uab.size(0), a = x_uab.size(1), b = x_uab.size(2);
  // Stored transposed, (S P)ᵀ = Pᵀ Sᵀ and (P S)ᵀ = Sᵀ Pᵀ.
  const SoftFamily::Factor factor{is_left, place_.is_transposed};
  if (is_left) {
    return family_->product(soft_, x_uab.view({u, groups_, side(), b}), factor).reshape({u, a, b});
  }
  const torch::Tensor x_uGas = x_uab.view({u, a, groups_, side()}).transpose(1, 2);
  return family_->product(soft_, x_uGas, factor).transpose(1, 2).reshape({u, a, b});
}

torch::Tensor Permutation::apply(const torch::Tensor& parameter) const {
  if (place_.parameter.is_stacked()) return permuted(parameter);
  return permuted(parameter.unsqueeze(0)).squeeze(0);
}

std::vector<torch::Tensor> Permutation::leaves() const {
  if (!is_soft()) return {};
  return {soft_};
}

void Permutation::visit_state(StateVisitor& visitor) {
  visit_rows(visitor, is_soft() ? kSoftPrefix : kIndexPrefix, place_.parameter,
             is_soft() ? soft_.detach() : index_un_);
}

void Permutation::fit_to(const SavedNames& saved) {
  const Parameter& weight = place_.parameter;
  const std::string name =
      weight.unit_ids.empty() ? weight.name : name_of_unit(weight.name, weight.unit_ids[0]);
  if (is_soft() && saved(kIndexPrefix + name)) {
    set_index(
        torch::empty({num_matrices_, place_.size()}, weight.tensor.options().dtype(torch::kInt64))
            .zero_());
  } else if (!is_soft() && saved(kSoftPrefix + name)) {
    if (family_ == nullptr) {
      throw Error(ExitCode::kMismatch,
                  name + ": the checkpoint's permutation is soft, the recipe's never is",
                  "use the checkpoint's sparsity.permutation");
    }
    soft_ = allocate_soft().requires_grad_();
    index_un_ = inverse_un_ = torch::Tensor();
  }
}

void Permutation::tensors_loaded() {
  if (is_soft()) return;
  set_index(index_un_);
  const torch::Tensor sorted_un = index_un_.gather(1, inverse_un_);
  if (!(sorted_un == at::arange(place_.size(), index_un_.options())).all().item<bool>()) {
    throw CheckpointError(kIndexPrefix + name() + ": no permutation");
  }
}

}  // namespace shoal
