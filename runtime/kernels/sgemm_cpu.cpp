#include "runtime/kernels/sgemm.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <dnnl.h>  // of LibTorch or of the system: both declare these functions alike
#include <fmt/format.h>
#include <omp.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace shoal {
namespace {

using Sgemm = decltype(&sgemm_);

struct OneDnn {
  decltype(&dnnl_sgemm) sgemm = nullptr;
  decltype(&dnnl_version) version = nullptr;
};

bool prefers_onednn() {
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)  // which forbids RTLD_DEEPBIND
  return !__builtin_cpu_is("intel");
#else
  return false;
#endif
}

/// Nothing where LibTorch's product is better or the library is missing.
OneDnn load_onednn() {
  if (!prefers_onednn()) return {};
  // LibTorch exports weak functions of the oneDNN inside it, with which a library that is linked
  // would initialise the wrong tables: bound deeply, it finds its own first.
  for (const char* name : {"libdnnl.so.3", "libdnnl.so.2"}) {
    void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (library == nullptr) continue;
    return {reinterpret_cast<decltype(&dnnl_sgemm)>(dlsym(library, "dnnl_sgemm")),
            reinterpret_cast<decltype(&dnnl_version)>(dlsym(library, "dnnl_version"))};
  }
  return {};
}

const OneDnn& onednn() {
  static const OneDnn loaded = load_onednn();
  return loaded;
}

/// Multiply-adds below which threads cost more than they give; oneDNN takes all it may.
constexpr int64_t kLeastSharedWork = int64_t{1} << 21;

class OneThread {
 public:
  OneThread() { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(threads_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int threads_ = omp_get_max_threads();
};

/// The one that ours hides.
Sgemm libtorch_sgemm() {
  static const auto found = reinterpret_cast<Sgemm>(dlsym(RTLD_NEXT, "sgemm_"));
  TORCH_CHECK(found != nullptr, "neither LibTorch exports sgemm_ nor is libdnnl installed");
  return found;
}

}  // namespace

bool misses_onednn() { return prefers_onednn() && onednn().sgemm == nullptr; }

std::string sgemm_library() {
  if (onednn().sgemm == nullptr) return "LibTorch";
  const dnnl_version_t* version = onednn().version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace shoal

void sgemm_(const char* a_op, const char* b_op, const int* m, const int* n, const int* k,
            const float* alpha, const float* a, const int* a_stride, const float* b,
            const int* b_stride, const float* beta, float* c, const int* c_stride) {
  using namespace shoal;
  if (onednn().sgemm == nullptr) {
    libtorch_sgemm()(a_op, b_op, m, n, k, alpha, a, a_stride, b, b_stride, beta, c, c_stride);
    return;
  }
  const int64_t work = int64_t{*m} * *n * *k;
  const std::optional<OneThread> alone =
      work < kLeastSharedWork ? std::optional<OneThread>(std::in_place) : std::nullopt;
  // oneDNN reads row-major memory: cᵀ = bᵀ aᵀ.
  const dnnl_status_t status = onednn().sgemm(*b_op, *a_op, *n, *m, *k, *alpha, b, *b_stride, a,
                                              *a_stride, *beta, c, *c_stride);
  TORCH_CHECK(status == dnnl_success, "dnnl_sgemm: status ", static_cast<int>(status), " for ", *n,
              " x ", *m, " x ", *k);
}
