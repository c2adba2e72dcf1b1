#include "moe/losses/balance_losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace shoal {
namespace {

/// The keys that every balance loss has, in the options of one.
BalanceLossOptions& common_options(Choice<BalanceLoss>& loss) {
  const config::Type& common = config::type_of<BalanceLossOptions>();
  const config::Type& type = loss.member()->options_type();
  if (&type == &common) return *static_cast<BalanceLossOptions*>(loss.erased_options());
  for (const config::FieldInfo& field : type.fields) {
    if (!field.rules.is_inlined || &field.type() != &common) continue;
    return *static_cast<BalanceLossOptions*>(field.member(loss.erased_options()));
  }
  throw std::logic_error("the options of balance loss " + loss.name() +
                         " do not inline BalanceLossOptions");
}

}  // namespace

std::vector<Choice<BalanceLoss>> usual_losses(const Router& router, bool scores_only) {
  std::vector<Choice<BalanceLoss>> losses;
  for (const UsualLoss& usual : router.usual_losses(scores_only)) {
    BalanceLossOptions& common = common_options(losses.emplace_back(usual.name));
    common.weight = usual.weight;
    common.scope = usual.scope;
  }
  return losses;
}

bool has_unnamed(const LossChoices& losses) {
  return losses && std::ranges::any_of(*losses, [](const auto& loss) { return loss.is_empty(); });
}

BalanceLosses::BalanceLosses(const std::vector<Choice<BalanceLoss>>& losses) {
  for (const Choice<BalanceLoss>& loss : losses) {
    losses_.push_back(Registry<BalanceLoss>::create(loss, {}));
  }
  for (const auto& loss : losses_) {
    const auto same = [&](const auto& other) { return other->name() == loss->name(); };
    names_.emplace_back(loss->name());
    if (std::count_if(losses_.begin(), losses_.end(), same) > 1) {
      names_.back() += fmt::format("_{}", enum_name(loss->scope()));
    }
  }
}

void BalanceLosses::check(const Router& router, std::string_view router_name,
                          Problems& problems) const {
  for (size_t i = 0; i < losses_.size(); ++i) {
    const std::string objection =
        router.takes_balance_losses()
            ? losses_[i]->objection(router)
            : fmt::format(
                  "the {} router decides by other means than each token's scores, a "
                  "balance loss cannot move it; leave losses out",
                  router_name);
    if (!objection.empty()) problems.add(fmt::format("losses[{}]", i), objection);
    for (size_t j = 0; j < i; ++j) {
      const BalanceLoss &loss = *losses_[i], &other = *losses_[j];
      if (loss.name() != other.name() || loss.scope() != other.scope()) continue;
      problems.add(fmt::format("losses[{}]", i),
                   fmt::format("is losses[{}] again; give that one the sum of both weights", j));
    }
  }
}

bool BalanceLosses::evens_out_loads() const {
  return std::ranges::any_of(
      losses_, [](const auto& loss) { return loss->evens_out_loads() && loss->weight() > 0; });
}

BalanceLosses::Sums BalanceLosses::evaluate(const Routing& routing, const TokenContext& context,
                                            Communicator& world) const {
  const auto items = static_cast<double>(context.step.samples_in_step * context.items_per_sample());
  Sums sums;
  for (const auto& loss : losses_) {
    const Scope scope(loss->scope(), context, world);
    sums.values.push_back(scope.weighted_sum(loss->value_S(routing, scope)));
    const torch::Tensor share = sums.values.back() * (loss->weight() / items);
    sums.auxiliary_loss = sums.auxiliary_loss.defined() ? sums.auxiliary_loss + share : share;
  }
  return sums;
}

}  // namespace shoal
