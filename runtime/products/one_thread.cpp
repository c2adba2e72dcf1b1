#include "runtime/products/one_thread.h"

#include <omp.h>

namespace shoal {

OneThread::OneThread() : threads_(omp_get_max_threads()) { omp_set_num_threads(1); }
OneThread::~OneThread() { omp_set_num_threads(threads_); }

}  // namespace shoal
