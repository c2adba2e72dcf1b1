#include "moe/experts/gated_expert_bank.h"

namespace shoal {
namespace {

const Registration<UnitBank, GatedExpertBank> registered_gated_expert_bank{
    "gated", "gated MLPs of equal width (SwiGLU)"};

}  // namespace
}  // namespace shoal
