#include <ATen/cuda/CUDAContextLight.h>
#include <cusparse.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/emulated_gpu/accesses.h"
#include "tests/support/emulated_gpu/counts.h"

// cuSPARSE on the emulated GPU: plain loops, and a refusal of what the library does not allow.
// Stricter than it: a product needs the workspace that was prepared for its sparse matrix, with the
// same arguments, and untouched since; scalars are the host's; columns of a row ascend.

struct cusparseContext {
  bool has_stream = false;
};

struct cusparseDnMatDescr {
  int64_t rows, cols, ld;
  void* values;
  cudaDataType type;
  cusparseOrder_t order;
};

namespace emulated_gpu {
namespace {

/// Arguments that a product and its preparation have in common.
struct Arguments {
  cusparseHandle_t handle;
  cusparseOperation_t op_a, op_b;
  cudaDataType type;
  int algorithm;
  std::vector<int64_t> sizes;  ///< and strides and orders, of the dense matrices

  bool operator==(const Arguments&) const = default;
};

/// The workspace that a product may use.
struct Prepared {
  std::byte* workspace = nullptr;
  size_t bytes = 0;
  bool is_done = false;
  Arguments arguments{};
};

}  // namespace
}  // namespace emulated_gpu

struct cusparseSpMatDescr {
  int64_t rows, cols, nnz;
  const int32_t *start, *column;
  void* values;
  cudaDataType type;
  mutable emulated_gpu::Prepared product,
      sampled;  // the library writes them in const matrices, too
};

namespace emulated_gpu {
namespace {

struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void require(bool is_allowed, const char* what) {
  if (!is_allowed) throw Refusal(what);
}

thread_local std::string last_refusal;

cusparseStatus_t status_of(const std::function<void()>& body) {
  try {
    const OpenMemory open;
    body();
    return CUSPARSE_STATUS_SUCCESS;
  } catch (const Refusal& refusal) {
    last_refusal = refusal.what();
    return CUSPARSE_STATUS_INVALID_VALUE;
  }
}

/// Counts a call, which is queued on the current stream.
void note_call(const char* name, std::initializer_list<const void*> reads, const void* writes) {
  count_launch(name);
  const Work work = queue_work(name, current_stream());
  for (const void* read : reads) note_read(work, read);
  note_write(work, writes);
}

size_t size_of(cudaDataType type) { return type == CUDA_R_64F ? sizeof(double) : sizeof(float); }

void require_memory(const void* first, int64_t count, size_t size, const char* what) {
  require(count == 0 || is_device_memory(first, static_cast<size_t>(count) * size), what);
}

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

void check_values(const cusparseSpMatDescr& matrix) {
  require_memory(matrix.values, matrix.nnz, size_of(matrix.type),
                 "the values are not GPU memory of their number");
  require(is_aligned(matrix.values), "the values are not aligned to 16 bytes");
}

void check_pattern(const cusparseSpMatDescr& matrix) {
  require(matrix.start[0] == 0 && matrix.start[matrix.rows] == matrix.nnz,
          "row offsets do not go from 0 to nnz");
  for (int64_t r = 0; r < matrix.rows; ++r) {
    require(matrix.start[r] <= matrix.start[r + 1], "row offsets do not ascend");
    for (int32_t z = matrix.start[r]; z < matrix.start[r + 1]; ++z) {
      require(matrix.column[z] >= 0 && matrix.column[z] < matrix.cols, "a column is outside");
      require(z == matrix.start[r] || matrix.column[z - 1] < matrix.column[z],
              "columns of a row do not ascend");
    }
  }
}

void check_dense(const cusparseDnMatDescr& matrix) {
  const bool by_columns = matrix.order == CUSPARSE_ORDER_COL;
  require(by_columns || matrix.order == CUSPARSE_ORDER_ROW, "no order of a dense matrix");
  require(matrix.rows > 0 && matrix.cols > 0, "a dense matrix without numbers");
  const int64_t line = by_columns ? matrix.rows : matrix.cols;
  const int64_t lines = by_columns ? matrix.cols : matrix.rows;
  require(matrix.ld >= line, "the leading dimension is less than a row or column");
  require_memory(matrix.values, (lines - 1) * matrix.ld + line, size_of(matrix.type),
                 "a dense matrix is not GPU memory of its size");
}

/// One of a dense matrix's numbers, in the type of the product.
template <class Real>
Real& number_of(const cusparseDnMatDescr& matrix, int64_t row, int64_t column) {
  const bool by_columns = matrix.order == CUSPARSE_ORDER_COL;
  return static_cast<Real*>(
      matrix.values)[by_columns ? column * matrix.ld + row : row * matrix.ld + column];
}
template <class Real>
Real factor_of(const cusparseDnMatDescr& matrix, cusparseOperation_t op,
               std::pair<int64_t, int64_t> at) {
  const bool is_plain = op == CUSPARSE_OPERATION_NON_TRANSPOSE;
  return number_of<Real>(matrix, is_plain ? at.first : at.second, is_plain ? at.second : at.first);
}

int64_t rows_of(const cusparseDnMatDescr& matrix, cusparseOperation_t op) {
  return op == CUSPARSE_OPERATION_NON_TRANSPOSE ? matrix.rows : matrix.cols;
}
int64_t columns_of(const cusparseDnMatDescr& matrix, cusparseOperation_t op) {
  return op == CUSPARSE_OPERATION_NON_TRANSPOSE ? matrix.cols : matrix.rows;
}

std::vector<int64_t> sizes_of(std::initializer_list<const cusparseDnMatDescr*> matrices) {
  std::vector<int64_t> sizes;
  for (const cusparseDnMatDescr* matrix : matrices) {
    sizes.insert(sizes.end(), {matrix->rows, matrix->cols, matrix->ld, matrix->order});
  }
  return sizes;
}

void check_common(const Arguments& arguments, const void* alpha, const void* beta) {
  require(arguments.handle != nullptr && arguments.handle->has_stream, "a handle without a stream");
  require(!is_device_memory(alpha, size_of(arguments.type)) &&
              !is_device_memory(beta, size_of(arguments.type)),
          "alpha and beta are not the host's");
}

// ---- workspaces, whose bytes are what the preparation leaves

std::byte mark_of(size_t place) { return static_cast<std::byte>(place * 7 + 3); }

size_t workspace_bytes(const cusparseSpMatDescr& matrix) {
  return static_cast<size_t>(matrix.nnz) * 2 + 5;
}

void prepare(Prepared& prepared, const cusparseSpMatDescr& matrix, const Arguments& arguments,
             void* workspace) {
  const size_t bytes = workspace_bytes(matrix);
  require(is_device_memory(workspace, bytes), "the workspace is smaller than was asked for");
  prepared = {static_cast<std::byte*>(workspace), bytes, true, arguments};
  for (size_t i = 0; i < bytes; ++i) prepared.workspace[i] = mark_of(i);
}

void check_prepared(const Prepared& prepared, const Arguments& arguments, const void* workspace) {
  require(prepared.is_done, "the product was not prepared");
  require(prepared.workspace == workspace, "another workspace was prepared");
  require(prepared.arguments == arguments, "the product was prepared with other arguments");
  require(is_device_memory(workspace, prepared.bytes), "the workspace was freed");
  for (size_t i = 0; i < prepared.bytes; ++i) {
    require(prepared.workspace[i] == mark_of(i), "the workspace was written");
  }
}

// ---- products

/// c = alpha a b + beta c. Which of a and c is sparse is the product's affair.
struct Scalars {
  const void *alpha, *beta;

  template <class Real>
  Real result(Real sum, const Real& before) const {
    const Real a = *static_cast<const Real*>(alpha), b = *static_cast<const Real*>(beta);
    return b == 0 ? a * sum : a * sum + b * before;
  }
};

template <class Body>
void with_type(cudaDataType type, const Body& body) {
  require(type == CUDA_R_32F || type == CUDA_R_64F, "another type than float32 and float64");
  return type == CUDA_R_32F ? body(float{}) : body(double{});
}

struct Product {
  Arguments arguments;
  Scalars scalars;
  const cusparseSpMatDescr& a;
  const cusparseDnMatDescr& b;
  const cusparseDnMatDescr& c;

  void check() const {
    check_common(arguments, scalars.alpha, scalars.beta);
    require(arguments.algorithm == CUSPARSE_SPMM_CSR_ALG3, "only CSR_ALG3 is emulated");
    require(arguments.op_a == CUSPARSE_OPERATION_NON_TRANSPOSE &&
                arguments.op_b != CUSPARSE_OPERATION_CONJUGATE_TRANSPOSE,
            "CSR_ALG3 takes no transposed sparse matrix");
    require(b.order == c.order, "dense matrices of two orders");
    require(a.type == arguments.type && b.type == arguments.type && c.type == arguments.type,
            "types differ");
    require(a.rows == c.rows && a.cols == rows_of(b, arguments.op_b) &&
                columns_of(b, arguments.op_b) == c.cols,
            "sizes do not fit");
    check_values(a);
  }
  void run() const {
    with_type(arguments.type, [&](auto zero) {
      using Real = decltype(zero);
      const auto* values = static_cast<const Real*>(a.values);
      for (int64_t r = 0; r < c.rows; ++r) {
        for (int64_t t = 0; t < c.cols; ++t) {
          Real sum = 0;
          for (int32_t z = a.start[r]; z < a.start[r + 1]; ++z) {
            sum += values[z] * factor_of<Real>(b, arguments.op_b, {a.column[z], t});
          }
          Real& to = number_of<Real>(c, r, t);
          to = scalars.result(sum, to);
        }
      }
    });
  }
};

struct Sampled {
  Arguments arguments;
  Scalars scalars;
  const cusparseDnMatDescr& a;
  const cusparseDnMatDescr& b;
  const cusparseSpMatDescr& c;

  void check() const {
    check_common(arguments, scalars.alpha, scalars.beta);
    require(a.type == arguments.type && b.type == arguments.type && c.type == arguments.type,
            "types differ");
    require(rows_of(a, arguments.op_a) == c.rows && columns_of(b, arguments.op_b) == c.cols &&
                columns_of(a, arguments.op_a) == rows_of(b, arguments.op_b),
            "sizes do not fit");
    check_values(c);
  }
  void run() const {
    with_type(arguments.type, [&](auto zero) {
      using Real = decltype(zero);
      auto* values = static_cast<Real*>(c.values);
      for (int64_t r = 0; r < c.rows; ++r) {
        for (int32_t z = c.start[r]; z < c.start[r + 1]; ++z) {
          Real sum = 0;
          for (int64_t t = 0; t < columns_of(a, arguments.op_a); ++t) {
            sum += factor_of<Real>(a, arguments.op_a, {r, t}) *
                   factor_of<Real>(b, arguments.op_b, {t, c.column[z]});
          }
          values[z] = scalars.result(sum, values[z]);
        }
      }
    });
  }
};

}  // namespace
}  // namespace emulated_gpu

// NOLINTBEGIN: CUDA's names
using namespace emulated_gpu;

cusparseHandle_t at::cuda::getCurrentCUDASparseHandle() {
  static thread_local cusparseContext own{true};
  return &own;
}

extern "C" {

const char* cusparseGetErrorString(cusparseStatus_t) { return last_refusal.c_str(); }

cusparseStatus_t cusparseCreateCsr(cusparseSpMatDescr_t* made, int64_t rows, int64_t cols,
                                   int64_t nnz, void* start, void* column, void* values,
                                   cusparseIndexType_t start_type, cusparseIndexType_t column_type,
                                   cusparseIndexBase_t base, cudaDataType type) {
  return status_of([&] {
    require(rows > 0 && cols > 0 && nnz > 0, "a sparse matrix without weights");
    require(start_type == CUSPARSE_INDEX_32I && column_type == CUSPARSE_INDEX_32I,
            "only 32-bit indices are emulated");
    require(base == CUSPARSE_INDEX_BASE_ZERO, "only indices from zero are emulated");
    require_memory(start, rows + 1, sizeof(int32_t),
                   "row offsets are not GPU memory of their size");
    require_memory(column, nnz, sizeof(int32_t), "columns are not GPU memory of their number");
    require(is_aligned(start) && is_aligned(column), "indices are not aligned to 16 bytes");
    const cusparseSpMatDescr matrix{rows,
                                    cols,
                                    nnz,
                                    static_cast<const int32_t*>(start),
                                    static_cast<const int32_t*>(column),
                                    values,
                                    type,
                                    {},
                                    {}};
    check_values(matrix);
    check_pattern(matrix);
    *made = new cusparseSpMatDescr(matrix);
  });
}

cusparseStatus_t cusparseDestroySpMat(cusparseConstSpMatDescr_t matrix) {
  delete matrix;
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseSpMatSetValues(cusparseSpMatDescr_t matrix, void* values) {
  matrix->values = values;
  return status_of([&] { check_values(*matrix); });
}

cusparseStatus_t cusparseCreateDnMat(cusparseDnMatDescr_t* made, int64_t rows, int64_t cols,
                                     int64_t ld, void* values, cudaDataType type,
                                     cusparseOrder_t order) {
  return status_of([&] {
    const cusparseDnMatDescr matrix{rows, cols, ld, values, type, order};
    check_dense(matrix);
    *made = new cusparseDnMatDescr(matrix);
  });
}

cusparseStatus_t cusparseDestroyDnMat(cusparseConstDnMatDescr_t matrix) {
  delete matrix;
  return CUSPARSE_STATUS_SUCCESS;
}

#define SHOAL_PRODUCT_PARAMETERS                                                                  \
  cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b, const void *alpha, \
      cusparseConstSpMatDescr_t a, cusparseConstDnMatDescr_t b, const void *beta,                 \
      cusparseDnMatDescr_t c, cudaDataType type, cusparseSpMMAlg_t algorithm
#define SHOAL_SAMPLED_PARAMETERS                                                                  \
  cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b, const void *alpha, \
      cusparseConstDnMatDescr_t a, cusparseConstDnMatDescr_t b, const void *beta,                 \
      cusparseSpMatDescr_t c, cudaDataType type, cusparseSDDMMAlg_t algorithm
#define SHOAL_PRODUCT \
  Product { {handle, op_a, op_b, type, algorithm, sizes_of({b, c})}, {alpha, beta}, *a, *b, *c }
#define SHOAL_SAMPLED \
  Sampled { {handle, op_a, op_b, type, algorithm, sizes_of({a, b})}, {alpha, beta}, *a, *b, *c }

cusparseStatus_t cusparseSpMM_bufferSize(SHOAL_PRODUCT_PARAMETERS, size_t* bytes) {
  return status_of([&] {
    SHOAL_PRODUCT.check();
    *bytes = workspace_bytes(*a);
  });
}

cusparseStatus_t cusparseSpMM_preprocess(SHOAL_PRODUCT_PARAMETERS, void* workspace) {
  return status_of([&] {
    const auto product = SHOAL_PRODUCT;
    product.check();
    note_call("cusparseSpMM_preprocess", {a->start, a->column}, workspace);
    prepare(a->product, *a, product.arguments, workspace);
  });
}

cusparseStatus_t cusparseSpMM(SHOAL_PRODUCT_PARAMETERS, void* workspace) {
  return status_of([&] {
    const auto product = SHOAL_PRODUCT;
    product.check();
    check_prepared(a->product, product.arguments, workspace);
    note_call("cusparseSpMM", {a->start, a->column, a->values, b->values, workspace}, c->values);
    product.run();
  });
}

cusparseStatus_t cusparseSDDMM_bufferSize(SHOAL_SAMPLED_PARAMETERS, size_t* bytes) {
  return status_of([&] {
    SHOAL_SAMPLED.check();
    *bytes = workspace_bytes(*c);
  });
}

cusparseStatus_t cusparseSDDMM_preprocess(SHOAL_SAMPLED_PARAMETERS, void* workspace) {
  return status_of([&] {
    const auto sampled = SHOAL_SAMPLED;
    sampled.check();
    note_call("cusparseSDDMM_preprocess", {c->start, c->column}, workspace);
    prepare(c->sampled, *c, sampled.arguments, workspace);
  });
}

cusparseStatus_t cusparseSDDMM(SHOAL_SAMPLED_PARAMETERS, void* workspace) {
  return status_of([&] {
    const auto sampled = SHOAL_SAMPLED;
    sampled.check();
    check_prepared(c->sampled, sampled.arguments, workspace);
    note_call("cusparseSDDMM", {c->start, c->column, a->values, b->values, workspace}, c->values);
    sampled.run();
  });
}

}  // extern "C"
// NOLINTEND
