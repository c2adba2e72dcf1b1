# Finds nvcc and enables CUDA. Sets SHOAL_CUDA_VERSION (empty: no plug-in) and SHOAL_CUDA_WHY.
set(SHOAL_CUDA_VERSION "")
set(SHOAL_CUDA_WHY "")
if(NOT SHOAL_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "SHOAL_CUDA is '${SHOAL_CUDA}', expected AUTO, ON or OFF")
endif()
if(SHOAL_CUDA STREQUAL "OFF")
  set(SHOAL_CUDA_WHY "SHOAL_CUDA=OFF")
  return()
endif()

set(missing "")
if(NOT CMAKE_CUDA_COMPILER)
  find_program(SHOAL_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
               PATH_SUFFIXES bin)
  mark_as_advanced(SHOAL_NVCC)
  if(SHOAL_NVCC)
    set(CMAKE_CUDA_COMPILER "${SHOAL_NVCC}")
  endif()
endif()
if(NOT CMAKE_CUDA_COMPILER)
  set(missing "nvcc not found: install the CUDA 13.0 toolkit, or put nvcc on PATH")
elseif(NOT TARGET LibTorch::cuda)
  set(missing "this LibTorch was built without CUDA: use the wheel that launch/setup installs")
endif()
if(NOT missing)
  # Linking would succeed without them, loading would not.
  get_filename_component(toolkit "${CMAKE_CUDA_COMPILER}" REALPATH)
  get_filename_component(toolkit "${toolkit}/../.." ABSOLUTE)
  set(absent "")
  foreach(library IN ITEMS cudnn.so.9 nccl.so.2 cusparseLt.so.0 nvshmem_host.so.3 cufile.so.0
                           cublas.so.13 cusparse.so.12 cufft.so.12 curand.so.10)
    find_file(found_library NAMES lib${library} NO_CACHE
              PATHS ${LibTorch_WHEEL_LIB_DIRS} "${toolkit}/lib64" "${toolkit}/lib"
                    "${toolkit}/targets/${CMAKE_SYSTEM_PROCESSOR}-linux/lib"
                    /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} /usr/local/lib /usr/lib)
    if(NOT found_library)
      list(APPEND absent lib${library})
    endif()
    unset(found_library)
  endforeach()
  if(absent)
    list(JOIN absent ", " absent)
    set(missing "libtorch_cuda needs ${absent}: run launch/setup")
  endif()
endif()
if(NOT missing)
  # cuSPARSE is called through LibTorch's handles, whose header includes the others.
  set(absent "")
  foreach(file IN ITEMS include/cusparse.h include/cublasLt.h include/cusolverDn.h
                        lib/libcusparse.so)
    string(REPLACE "lib/" "lib64/" file64 "${file}")
    if(NOT EXISTS "${toolkit}/${file}" AND NOT EXISTS "${toolkit}/${file64}" AND
       NOT EXISTS "${toolkit}/targets/${CMAKE_SYSTEM_PROCESSOR}-linux/${file}")
      list(APPEND absent "${file}")
    endif()
  endforeach()
  if(absent)
    list(JOIN absent ", " absent)
    set(missing "${toolkit} lacks ${absent}: install the full CUDA 13.0 toolkit")
  endif()
endif()
if(NOT missing)
  include(ShoalFindNccl)
  set(missing "${SHOAL_NCCL_WHY}")
endif()
if(missing)
  if(SHOAL_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SHOAL_CUDA=ON: ${missing}")
  endif()
  set(SHOAL_CUDA_WHY "${missing}")
  return()
endif()

# What kernels are compiled for: 80 is Ampere, 90 Hopper, 100 Blackwell. `native` fails where no GPU is.
# No kernel uses instructions that only 90a has (wgmma, setmaxnreg).
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90)
endif()
set(SHOAL_CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}" CACHE STRING
    "Compute capabilities of the GPUs to build for, such as 80;90;100")
include(ShoalCudaArchitectures)
shoal_cuda_architectures("${CMAKE_CUDA_COMPILER}" "${SHOAL_CUDA_ARCHITECTURES}")
set_source_files_properties("${PROJECT_SOURCE_DIR}/runtime/device/gpu_kernels_cuda.cpp" PROPERTIES
  COMPILE_DEFINITIONS "SHOAL_CUDA_ARCHITECTURES=${SHOAL_CUDA_CAPABILITIES}")
# The wheel's libraries use the shared runtime; a second, static one would not know their state.
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
enable_language(CUDA)
# CMake 3.25 does not know that this nvcc takes C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
find_package(CUDAToolkit REQUIRED)
set(SHOAL_CUDA_VERSION "${CMAKE_CUDA_COMPILER_VERSION}")
