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
#include "sparse/kernels/gpu_csr_matrix.h"

// T tokens
namespace shoal {
namespace {

using torch::Tensor;
using GpuCsrMatrixPtr = c10::intrusive_ptr<GpuCsrMatrix>;

void check(cusparseStatus_t status, const char* call) {
  TORCH_CHECK(status == CUSPARSE_STATUS_SUCCESS, call, ": ", cusparseGetErrorString(status));
}

struct Destroy {
  void operator()(const cusparseSpMatDescr* matrix) const { cusparseDestroySpMat(matrix); }
  void operator()(const cusparseDnMatDescr* matrix) const { cusparseDestroyDnMat(matrix); }
};
using SparseMatrix = std::unique_ptr<cusparseSpMatDescr, Destroy>;
using DenseMatrix = std::unique_ptr<cusparseDnMatDescr, Destroy>;
using DenseFactor = std::unique_ptr<const cusparseDnMatDescr, Destroy>;

// ---- arguments

/// cuSPARSE's name of a dtype, and 1 and 0 in it.
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

/// Contiguous [T, width] as the matrix [width, T].
DenseFactor by_columns(const Tensor& x) {
  const int64_t T = x.size(0), width = x.size(1);
  cusparseConstDnMatDescr_t made = nullptr;
  check(cusparseCreateConstDnMat(&made, width, T, /*ld=*/width, x.const_data_ptr(),
                                 scalars_of(x.scalar_type()).type, CUSPARSE_ORDER_COL),
        "cusparseCreateConstDnMat");
  return DenseFactor(made);
}

/// The same of a matrix that cuSPARSE writes.
DenseMatrix result_by_columns(const Tensor& y) {
  const int64_t T = y.size(0), width = y.size(1);
  cusparseDnMatDescr_t made = nullptr;
  check(cusparseCreateDnMat(&made, width, T, /*ld=*/width, y.mutable_data_ptr(),
                            scalars_of(y.scalar_type()).type, CUSPARSE_ORDER_COL),
        "cusparseCreateDnMat");
  return DenseMatrix(made);
}

/// Contiguous [T, width] as it is.
DenseFactor by_rows(const Tensor& x) {
  const int64_t T = x.size(0), width = x.size(1);
  cusparseConstDnMatDescr_t made = nullptr;
  check(cusparseCreateConstDnMat(&made, T, width, /*ld=*/width, x.const_data_ptr(),
                                 scalars_of(x.scalar_type()).type, CUSPARSE_ORDER_ROW),
        "cusparseCreateConstDnMat");
  return DenseFactor(made);
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

// ---- what is prepared once

/// Calls that may share a workspace. A handle belongs to one thread and device.
struct ProductKey {
  bool is_dots;
  int64_t tokens;
  at::ScalarType dtype;
  cusparseHandle_t handle;
  CUstream_st* stream;

  bool operator==(const ProductKey&) const = default;
};

ProductKey key_of(bool is_dots, const Tensor& x) {
  return {is_dots, x.size(0), x.scalar_type(), at::cuda::getCurrentCUDASparseHandle(),
          current_stream()};
}

/// cuSPARSE keeps in a descriptor which workspace was prepared for it.
struct Prepared {
  ProductKey key;
  SparseMatrix matrix;
  Tensor workspace;  ///< undefined before the first call
};

using PreparedList = std::list<Prepared>;  // the last used first

/// What is prepared for such calls, with these values.
Prepared& prepared_for(const ProductKey& key, GpuCsrMatrix& matrix, const Tensor& values) {
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

/// Runs a call after it was prepared, if this is its first.
template <class Call>
void run(const Call& call, Prepared& prepared, const torch::TensorOptions& options) {
  if (!prepared.workspace.defined()) {
    const auto bytes = static_cast<int64_t>(call.workspace_bytes());
    const Tensor workspace = torch::empty({bytes}, options.dtype(torch::kUInt8));
    call.prepare(workspace.mutable_data_ptr());
    prepared.workspace = workspace;
  }
  call.run(prepared.workspace.mutable_data_ptr());
}

// ---- calls

/// Of one product: some versions of cuSPARSE write only zeros behind 65,535 x 16 columns.
constexpr int64_t kMostTokens = 65535 * 16;

constexpr cusparseOperation_t kNoTranspose = CUSPARSE_OPERATION_NON_TRANSPOSE;

/// c = a b of a sparse a. The algorithm is the one whose results are the same in each run.
struct SparseTimesDense {
  cusparseHandle_t handle;
  cusparseConstSpMatDescr_t a;
  cusparseConstDnMatDescr_t b;
  cusparseDnMatDescr_t c;
  Scalars scalars;

  static constexpr cusparseSpMMAlg_t kAlgorithm = CUSPARSE_SPMM_CSR_ALG3;

  size_t workspace_bytes() const {
    size_t bytes = 0;
    check(cusparseSpMM_bufferSize(handle, kNoTranspose, kNoTranspose, scalars.one, a, b,
                                  scalars.zero, c, scalars.type, kAlgorithm, &bytes),
          "cusparseSpMM_bufferSize");
    return bytes;
  }
  void prepare(void* workspace) const {
    check(cusparseSpMM_preprocess(handle, kNoTranspose, kNoTranspose, scalars.one, a, b,
                                  scalars.zero, c, scalars.type, kAlgorithm, workspace),
          "cusparseSpMM_preprocess");
  }
  void run(void* workspace) const {
    check(cusparseSpMM(handle, kNoTranspose, kNoTranspose, scalars.one, a, b, scalars.zero, c,
                       scalars.type, kAlgorithm, workspace),
          "cusparseSpMM");
  }
};

/// The values of a sparse c = a b.
struct SampledDenseTimesDense {
  cusparseHandle_t handle;
  cusparseConstDnMatDescr_t a, b;
  cusparseSpMatDescr_t c;
  Scalars scalars;

  static constexpr cusparseSDDMMAlg_t kAlgorithm = CUSPARSE_SDDMM_ALG_DEFAULT;

  size_t workspace_bytes() const {
    size_t bytes = 0;
    check(cusparseSDDMM_bufferSize(handle, kNoTranspose, kNoTranspose, scalars.one, a, b,
                                   scalars.zero, c, scalars.type, kAlgorithm, &bytes),
          "cusparseSDDMM_bufferSize");
    return bytes;
  }
  void prepare(void* workspace) const {
    check(cusparseSDDMM_preprocess(handle, kNoTranspose, kNoTranspose, scalars.one, a, b,
                                   scalars.zero, c, scalars.type, kAlgorithm, workspace),
          "cusparseSDDMM_preprocess");
  }
  void run(void* workspace) const {
    check(cusparseSDDMM(handle, kNoTranspose, kNoTranspose, scalars.one, a, b, scalars.zero, c,
                        scalars.type, kAlgorithm, workspace),
          "cusparseSDDMM");
  }
};

/// y = the products of some tokens.
void multiply_part(GpuCsrMatrix& matrix, const Tensor& values, const Tensor& x, const Tensor& y) {
  const ProductKey key = key_of(/*is_dots=*/false, x);
  Prepared& prepared = prepared_for(key, matrix, values);
  const DenseFactor b = by_columns(x);
  const DenseMatrix c = result_by_columns(y);
  run(SparseTimesDense{key.handle, prepared.matrix.get(), b.get(), c.get(), scalars_of(key.dtype)},
      prepared, x.options());
}

Tensor csr_multiply_cuda(const GpuCsrMatrixPtr& matrix, const Tensor& values, const Tensor& x) {
  const c10::cuda::CUDAGuard guard(x.device());
  const std::lock_guard lock(matrix->mutex);
  Tensor y = torch::empty({x.size(0), matrix->num_rows()}, x.options());
  for (int64_t t = 0; t < x.size(0); t += kMostTokens) {
    const int64_t tokens = std::min(kMostTokens, x.size(0) - t);
    multiply_part(*matrix, values, x.narrow(0, t, tokens), y.narrow(0, t, tokens));
  }
  return y;
}

Tensor csr_dots_cuda(const GpuCsrMatrixPtr& matrix, const Tensor& dy, const Tensor& x) {
  const c10::cuda::CUDAGuard guard(x.device());
  const std::lock_guard lock(matrix->mutex);
  // Zeros: cuSPARSE does not document that SDDMM ignores its output's old values where beta is 0.
  Tensor gradient = torch::zeros({matrix->num_weights()}, x.options());
  const ProductKey key = key_of(/*is_dots=*/true, x);
  Prepared& prepared = prepared_for(key, *matrix, gradient);
  const DenseFactor a = by_columns(dy), b = by_rows(x);
  run(SampledDenseTimesDense{key.handle, a.get(), b.get(), prepared.matrix.get(),
                             scalars_of(key.dtype)},
      prepared, x.options());
  return gradient;
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("sparse_csr_multiply", csr_multiply_cuda);
  m.impl("sparse_csr_dots", csr_dots_cuda);
}

}  // namespace shoal
