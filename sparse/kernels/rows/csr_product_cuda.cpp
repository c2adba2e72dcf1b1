#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAGuard.h>
#include <cusparse.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <list>
#include <memory>
#include <mutex>

#include "runtime/device/current_stream_cuda.h"
#include "sparse/kernels/rows/gpu_csr_matrix.h"

// T tokens
namespace shoal {
namespace {

using torch::Tensor;
using GpuCsrMatrixPtr = c10::intrusive_ptr<GpuCsrMatrix>;

void check(cusparseStatus_t status, const char* call, const char* part = "") {
  TORCH_CHECK(status == CUSPARSE_STATUS_SUCCESS, call, part, ": ", cusparseGetErrorString(status));
}

struct Destroy {
  void operator()(cusparseSpMatDescr_t matrix) const { cusparseDestroySpMat(matrix); }
  void operator()(cusparseDnMatDescr_t matrix) const { cusparseDestroyDnMat(matrix); }
};
using SparseMatrix = std::unique_ptr<cusparseSpMatDescr, Destroy>;
using DenseMatrix = std::unique_ptr<cusparseDnMatDescr, Destroy>;

// ---- arguments

/// cuSPARSE's name of a dtype, with 1 and 0 of that type.
struct Scalars {
  cudaDataType type;
  const void *one, *zero;
};

Scalars scalars_of(at::ScalarType dtype) {
  static constexpr float kOneFloat = 1, kZeroFloat = 0;
  static constexpr double kOneDouble = 1, kZeroDouble = 0;
  if (dtype == torch::kFloat64) return {CUDA_R_64F, &kOneDouble, &kZeroDouble};
  TORCH_CHECK(dtype == torch::kFloat32, "sparse rows: expected float32 or float64, got ", dtype);
  return {CUDA_R_32F, &kOneFloat, &kZeroFloat};
}

/// A contiguous [T, width] as a row-major matrix, or as the column-major matrix [width, T].
DenseMatrix dense(const Tensor& x, cusparseOrder_t order) {
  const int64_t T = x.size(0), width = x.size(1);
  const bool by_rows = order == CUSPARSE_ORDER_ROW;
  cusparseDnMatDescr_t made = nullptr;
  check(cusparseCreateDnMat(&made, by_rows ? T : width, by_rows ? width : T, /*ld=*/width,
                            x.mutable_data_ptr(), scalars_of(x.scalar_type()).type, order),
        "cusparseCreateDnMat");
  return DenseMatrix(made);
}

SparseMatrix with_values(const GpuCsrMatrix& matrix, const Tensor& values) {
  cusparseSpMatDescr_t made = nullptr;
  check(cusparseCreateCsr(&made, matrix.num_rows(), matrix.num_columns, matrix.num_weights(),
                          matrix.start.mutable_data_ptr(), matrix.column.mutable_data_ptr(),
                          values.mutable_data_ptr(), CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                          CUSPARSE_INDEX_BASE_ZERO, scalars_of(values.scalar_type()).type),
        "cusparseCreateCsr");
  return SparseMatrix(made);
}

// ---- cached preparations

/// Calls with equal keys may share a workspace. A handle belongs to one thread and device.
struct ProductKey {
  bool is_dots;
  int64_t tokens;
  at::ScalarType dtype;
  at::Device device;
  cusparseHandle_t handle;
  CUstream_st* stream;

  bool operator==(const ProductKey&) const = default;
};

/// A matrix descriptor with its workspace; cuSPARSE stores in the descriptor that it is prepared.
struct Prepared {
  ProductKey key;
  SparseMatrix matrix;
  Tensor workspace;  ///< undefined before the first call
};

using PreparedList = std::list<Prepared>;  // the last used first

/// Returns the cached preparation for such products of x, with these values.
Prepared& prepared_for(bool is_dots, const Tensor& x, GpuCsrMatrix& matrix, const Tensor& values) {
  const ProductKey key{is_dots,
                       x.size(0),
                       x.scalar_type(),
                       x.device(),
                       at::cuda::getCurrentCUDASparseHandle(),
                       current_stream()};
  if (matrix.prepared == nullptr) matrix.prepared = std::make_shared<PreparedList>();
  auto& list = *static_cast<PreparedList*>(matrix.prepared.get());
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const Prepared& own) { return own.key == key; });
  if (found == list.end()) {
    list.push_front({key, with_values(matrix, values), {}});
    if (list.size() > GpuCsrMatrix::kMostPrepared) list.pop_back();
  } else {
    list.splice(list.begin(), list, found);
    check(cusparseSpMatSetValues(list.front().matrix.get(), values.mutable_data_ptr()),
          "cusparseSpMatSetValues");
  }
  return list.front();
}

// ---- calls

/// Limit of one product: some versions of cuSPARSE write only zeros behind 65,535 x 16 columns.
constexpr int64_t kMostTokens = 65535 * 16;

/// The three functions with which cuSPARSE computes c = a b.
template <class WorkspaceBytes, class Step, class Algorithm>
struct CusparseProduct {
  const char* name;
  WorkspaceBytes* workspace_bytes;
  Step *prepare, *run;
  Algorithm algorithm;  ///< whose results are the same in each run
};

/// Products with a sparse a.
constexpr CusparseProduct kSparseTimesDense{"cusparseSpMM", cusparseSpMM_bufferSize,
                                            cusparseSpMM_preprocess, cusparseSpMM,
                                            CUSPARSE_SPMM_CSR_ALG3};
/// The values of a sparse c.
constexpr CusparseProduct kSampledDenseTimesDense{"cusparseSDDMM", cusparseSDDMM_bufferSize,
                                                  cusparseSDDMM_preprocess, cusparseSDDMM,
                                                  CUSPARSE_SDDMM_ALG_DEFAULT};

/// Runs a product, after preparing it at the first call.
template <class Calls, class A, class B, class C>
void run(const Calls& product, const A& a, const B& b, const C& c, Prepared& prepared) {
  constexpr cusparseOperation_t kNoTranspose = CUSPARSE_OPERATION_NON_TRANSPOSE;
  const ProductKey& key = prepared.key;
  const Scalars scalars = scalars_of(key.dtype);
  const auto call = [&](auto* function, auto* last_argument, const char* part) {
    check(function(key.handle, kNoTranspose, kNoTranspose, scalars.one, a.get(), b.get(),
                   scalars.zero, c.get(), scalars.type, product.algorithm, last_argument),
          product.name, part);
  };
  if (!prepared.workspace.defined()) {
    size_t bytes = 0;
    call(product.workspace_bytes, &bytes, "_bufferSize");
    const Tensor workspace = torch::empty({static_cast<int64_t>(bytes)},
                                          at::TensorOptions(key.device).dtype(torch::kUInt8));
    call(product.prepare, workspace.mutable_data_ptr(), "_preprocess");
    prepared.workspace = workspace;
  }
  call(product.run, prepared.workspace.mutable_data_ptr(), "");
}

Tensor csr_multiply_cuda(const GpuCsrMatrixPtr& matrix, const Tensor& values, const Tensor& x) {
  const c10::cuda::CUDAGuard guard(x.device());
  const std::lock_guard lock(matrix->mutex);
  Tensor y = torch::empty({x.size(0), matrix->num_rows()}, x.options());
  for (int64_t t = 0; t < x.size(0); t += kMostTokens) {
    const int64_t tokens = std::min(kMostTokens, x.size(0) - t);
    const Tensor part = x.narrow(0, t, tokens);
    Prepared& prepared = prepared_for(/*is_dots=*/false, part, *matrix, values);
    run(kSparseTimesDense, prepared.matrix, dense(part, CUSPARSE_ORDER_COL),
        dense(y.narrow(0, t, tokens), CUSPARSE_ORDER_COL), prepared);
  }
  return y;
}

Tensor csr_dots_cuda(const GpuCsrMatrixPtr& matrix, const Tensor& dy, const Tensor& x) {
  const c10::cuda::CUDAGuard guard(x.device());
  const std::lock_guard lock(matrix->mutex);
  // Zeros: cuSPARSE does not document that SDDMM ignores old values of its output if beta is 0.
  Tensor gradient = torch::zeros({matrix->num_weights()}, x.options());
  Prepared& prepared = prepared_for(/*is_dots=*/true, x, *matrix, gradient);
  run(kSampledDenseTimesDense, dense(dy, CUSPARSE_ORDER_COL), dense(x, CUSPARSE_ORDER_ROW),
      prepared.matrix, prepared);
  return gradient;
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("sparse_csr_multiply", csr_multiply_cuda);
  m.impl("sparse_csr_dots", csr_dots_cuda);
}

}  // namespace shoal
