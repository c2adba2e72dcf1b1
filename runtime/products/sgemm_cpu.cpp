#include "runtime/products/sgemm.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <dnnl.h>  // of LibTorch or of the system: both declare these functions alike

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "runtime/products/few_rows_product.h"
#include "runtime/products/one_thread.h"

namespace shoal {
namespace {

using Sgemm = decltype(&sgemm_);

/// The functions of an opened libdnnl; null without one.
struct OneDnn {
  decltype(&dnnl_sgemm) sgemm = nullptr;
  decltype(&dnnl_version) version = nullptr;
};

bool prefers_onednn() {
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)  // which forbids RTLD_DEEPBIND
  return !__builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f");
#else
  return false;
#endif
}

/// None where LibTorch's product is better or the library is missing.
OneDnn load_onednn() {
  if (!prefers_onednn()) return {};
  // LibTorch exports weak symbols of its own oneDNN; RTLD_DEEPBIND makes libdnnl prefer libdnnl's.
  for (const char* name : {"libdnnl.so.3", "libdnnl.so.2"}) {
    void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (library == nullptr) continue;
    const OneDnn found{reinterpret_cast<decltype(&dnnl_sgemm)>(dlsym(library, "dnnl_sgemm")),
                       reinterpret_cast<decltype(&dnnl_version)>(dlsym(library, "dnnl_version"))};
    // One with threads of its own, such as TBB's, would ignore ours and their number.
    if (found.sgemm != nullptr && found.version != nullptr &&
        found.version()->cpu_runtime == DNNL_RUNTIME_OMP) {
      return found;
    }
    dlclose(library);
  }
  return {};
}

const OneDnn& onednn() {
  static const OneDnn loaded = load_onednn();
  return loaded;
}

/// Multiply-adds below which threads cost more than they gain; oneDNN always uses all it may.
constexpr int64_t kLeastSharedWork = int64_t{1} << 21;

/// LibTorch's sgemm_, which ours precedes.
Sgemm libtorch_sgemm() {
  static const auto found = reinterpret_cast<Sgemm>(dlsym(RTLD_NEXT, "sgemm_"));
  TORCH_CHECK(found != nullptr, "neither LibTorch exports sgemm_ nor is libdnnl installed");
  return found;
}

/// The library that holds an address.
const void* library_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

/// True if LibTorch calls the sgemm_ of this file: not if the linker did not export it.
bool is_programs_sgemm() {
  static const char here = 0;
  return library_of(dlsym(RTLD_DEFAULT, "sgemm_")) == library_of(&here);
}

bool is_transposed(char op) { return op != 'N' && op != 'n'; }

/// The operation in oneDNN's terms: for real numbers the conjugate transpose is the transpose.
char op_of(char op) { return is_transposed(op) ? 'T' : 'N'; }

}  // namespace

bool misses_onednn() { return prefers_onednn() && onednn().sgemm == nullptr; }

std::string sgemm_library() {
  if (onednn().sgemm == nullptr || !is_programs_sgemm()) return "LibTorch";
  const dnnl_version_t* version = onednn().version();
  // Without fmt, which programs that link this may not have.
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch);
}

}  // namespace shoal

void sgemm_(const char* a_op, const char* b_op, const int* m, const int* n, const int* k,
            const float* alpha, const float* a, const int* a_stride, const float* b,
            const int* b_stride, const float* beta, float* c, const int* c_stride) {
  using namespace shoal;
  // Of an empty sum, whose result is beta c, oneDNN leaves c as it was.
  if (onednn().sgemm == nullptr || *k == 0) {
    libtorch_sgemm()(a_op, b_op, m, n, k, alpha, a, a_stride, b, b_stride, beta, c, c_stride);
    return;
  }
  if (*n <= kFewRows && *k >= kManySummed && is_transposed(*a_op) && !is_transposed(*b_op)) {
    multiply_few_rows({*n, *m, *k, *alpha, b, *b_stride, a, *a_stride, *beta, c, *c_stride});
    return;
  }
  const int64_t work = int64_t{*m} * *n * *k;
  const std::optional<OneThread> alone =
      work < kLeastSharedWork ? std::optional<OneThread>(std::in_place) : std::nullopt;
  // oneDNN reads row-major memory: cᵀ = bᵀ aᵀ.
  const dnnl_status_t status = onednn().sgemm(op_of(*b_op), op_of(*a_op), *n, *m, *k, *alpha, b,
                                              *b_stride, a, *a_stride, *beta, c, *c_stride);
  TORCH_CHECK(status == dnnl_success, "dnnl_sgemm: status ", static_cast<int>(status), " for ", *n,
              " x ", *m, " x ", *k);
}
