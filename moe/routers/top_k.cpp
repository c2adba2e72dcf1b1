#include "moe/routers/top_k.h"

namespace shoal {
namespace {

const Registration<Router, TopKRouter> registered_top_k_router{
    "top_k", "the k units of the highest softmax score, with noise while training"};

}  // namespace
}  // namespace shoal
