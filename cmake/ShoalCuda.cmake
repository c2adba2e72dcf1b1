# The plug-in: every *_cuda.cpp and *.cu in one library, loaded only for `device: cuda`.
if(NOT SHOAL_CUDA_VERSION)
  return()
endif()
set(cuda_cpp "")
set(cuda_cu "")
foreach(folder IN ITEMS runtime parallel moe sparse models launch)
  file(GLOB_RECURSE found_cpp CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*_cuda.cpp")
  file(GLOB_RECURSE found_cu CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*.cu")
  list(APPEND cuda_cpp ${found_cpp})
  list(APPEND cuda_cu ${found_cu})
endforeach()
if(NOT cuda_cpp AND NOT cuda_cu)
  return()
endif()

# Products and sums of these stay apart, as -ffp-contract=off keeps them on the host; in all others
# the compiler fuses them. The head of each file says why (checked by tests/lint.py).
set(SHOAL_UNFUSED_KERNELS
    moe/kernels/logit_functions_cuda.cu
    moe/kernels/permute_rows_cuda.cu
    moe/kernels/row_top_k_cuda.cu
    moe/nexus/kernels/memory_lookup_cuda.cu
    moe/routing/capacity_cuda.cu
    moe/routing/fused_router_cuda.cu
    runtime/random/random_cuda.cu)

# Kernels include no torch header: nvcc parses them in seconds.
if(cuda_cu)
  add_library(shoal_kernels OBJECT ${cuda_cu})
  target_include_directories(shoal_kernels PRIVATE "${PROJECT_SOURCE_DIR}")
  set_target_properties(shoal_kernels PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
  target_compile_options(shoal_kernels PRIVATE
    -lineinfo --expt-relaxed-constexpr -Xcompiler=-fPIC,-Wall,-Wextra -Werror=all-warnings)
  list(TRANSFORM SHOAL_UNFUSED_KERNELS PREPEND "${PROJECT_SOURCE_DIR}/" OUTPUT_VARIABLE unfused)
  set_source_files_properties(${unfused} PROPERTIES COMPILE_OPTIONS --fmad=false)
endif()

add_library(shoal_cuda MODULE ${cuda_cpp})
shoal_use_torch(shoal_cuda)
if(cuda_cu)
  target_sources(shoal_cuda PRIVATE $<TARGET_OBJECTS:shoal_kernels>)
endif()
target_include_directories(shoal_cuda SYSTEM PRIVATE ${SHOAL_NCCL_INCLUDE}
                           ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(shoal_cuda PRIVATE shoal_lib LibTorch::cuda LibTorch::c10_cuda
                      CUDA::cudart CUDA::cusparse "${SHOAL_NCCL_LIBRARY}")
# NCCL's folder first: one file for the plug-in and libtorch_cuda.
get_filename_component(nccl_dir "${SHOAL_NCCL_LIBRARY}" DIRECTORY)
set_target_properties(shoal_cuda PROPERTIES
  PREFIX lib LINKER_LANGUAGE CXX
  BUILD_RPATH "${nccl_dir};${LibTorch_LIB_DIR};${CUDAToolkit_LIBRARY_DIR}"
  INSTALL_RPATH "$ORIGIN;${nccl_dir};${LibTorch_LIB_DIR};${CUDAToolkit_LIBRARY_DIR}")
