# Finds LibTorch without importing torch and without nvcc.
#
# Where it looks, first hit wins: -DSHOAL_TORCH_ROOT, the environment variable SHOAL_TORCH_ROOT,
# the folder launch/setup fills, the torch that python3 would import.
# A root is the folder that holds include/ and lib/.
#
# Sets LibTorch_FOUND, LibTorch_VERSION, LibTorch_ROOT, LibTorch_HOW, LibTorch_LIB_DIR and makes
# the targets LibTorch::c10, LibTorch::cpu and, where the files exist, LibTorch::c10_cuda and
# LibTorch::cuda.

function(_libtorch_candidates out)
  if(DEFINED ENV{XDG_CACHE_HOME} AND NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
    set(cache "$ENV{XDG_CACHE_HOME}")
  else()
    set(cache "$ENV{HOME}/.cache")
  endif()
  set(${out} "${cache}/shoal/torch-2.11.0/torch" PARENT_SCOPE)
endfunction()

function(_libtorch_ask_python out)
  set(${out} "" PARENT_SCOPE)
  find_program(SHOAL_PYTHON3 python3)
  mark_as_advanced(SHOAL_PYTHON3)
  if(NOT SHOAL_PYTHON3)
    return()
  endif()
  # find_spec finds the folder only; importing torch would load every CUDA library.
  execute_process(
    COMMAND ${SHOAL_PYTHON3} -c
            "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

function(_libtorch_resolve)
  set(how "")
  # A folder found by an earlier run is asked for anew if it is gone or the environment names one.
  if(SHOAL_TORCH_HOW AND (NOT "$ENV{SHOAL_TORCH_ROOT}" STREQUAL "" OR
                          NOT EXISTS "${SHOAL_TORCH_ROOT}/lib/libtorch_cpu.so"))
    unset(SHOAL_TORCH_ROOT CACHE)
    unset(SHOAL_TORCH_HOW CACHE)
  endif()
  if(SHOAL_TORCH_ROOT)
    set(root "${SHOAL_TORCH_ROOT}")
    set(how "-DSHOAL_TORCH_ROOT")
    if(SHOAL_TORCH_HOW)
      set(how "${SHOAL_TORCH_HOW}")
    endif()
  elseif(NOT "$ENV{SHOAL_TORCH_ROOT}" STREQUAL "")
    set(root "$ENV{SHOAL_TORCH_ROOT}")
    set(how "environment variable SHOAL_TORCH_ROOT")
  else()
    _libtorch_candidates(root)
    set(how "installed by launch/setup")
    if(NOT EXISTS "${root}/lib/libtorch_cpu.so")
      _libtorch_ask_python(root)
      set(how "found through python3")
    endif()
  endif()
  if(root AND NOT EXISTS "${root}/lib/libtorch_cpu.so")
    message(FATAL_ERROR "LibTorch: ${root} (${how}) has no lib/libtorch_cpu.so.\n"
            "  Give the folder that holds include/ and lib/, or run launch/setup.")
  endif()
  if(root AND NOT SHOAL_TORCH_ROOT)
    # A later configure run may come from a shell without the variable.
    set(SHOAL_TORCH_ROOT "${root}" CACHE PATH "LibTorch: the folder with include/ and lib/")
    set(SHOAL_TORCH_HOW "${how}" CACHE INTERNAL "")
  endif()
  set(LibTorch_ROOT "${root}" PARENT_SCOPE)
  set(LibTorch_HOW "${how}" PARENT_SCOPE)
endfunction()

function(_libtorch_read_version root out)
  set(text "")
  foreach(file IN ITEMS torch/headeronly/version.h torch/version.h
                        torch/csrc/api/include/torch/version.h)
    if(EXISTS "${root}/include/${file}")
      file(STRINGS "${root}/include/${file}" lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH)")
      string(APPEND text "${lines};")
    endif()
  endforeach()
  set(version "")
  foreach(part IN ITEMS MAJOR MINOR PATCH)
    if(text MATCHES "TORCH_VERSION_${part} ([0-9]+)")
      list(APPEND version ${CMAKE_MATCH_1})
    endif()
  endforeach()
  list(JOIN version "." version)
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

function(_libtorch_target name library)
  if(NOT EXISTS "${LibTorch_LIB_DIR}/${library}" OR TARGET LibTorch::${name})
    return()
  endif()
  add_library(LibTorch::${name} SHARED IMPORTED)
  set_target_properties(LibTorch::${name} PROPERTIES
    IMPORTED_LOCATION "${LibTorch_LIB_DIR}/${library}"
    IMPORTED_SONAME ${library}
    INTERFACE_INCLUDE_DIRECTORIES
      "${LibTorch_ROOT}/include;${LibTorch_ROOT}/include/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "${ARGN}")
endfunction()

_libtorch_resolve()
set(LibTorch_VERSION "")
if(LibTorch_ROOT)
  set(LibTorch_LIB_DIR "${LibTorch_ROOT}/lib")
  _libtorch_read_version("${LibTorch_ROOT}" LibTorch_VERSION)
endif()

include(FindPackageHandleStandardArgs)
if(NOT LibTorch_ROOT)
  set(LibTorch_FOUND FALSE)
  message(FATAL_ERROR "LibTorch: not found. Run launch/setup, or pass "
          "-DSHOAL_TORCH_ROOT=FOLDER (the one that holds include/ and lib/).")
elseif(NOT LibTorch_VERSION OR
       (LibTorch_FIND_VERSION AND LibTorch_VERSION VERSION_LESS LibTorch_FIND_VERSION))
  message(FATAL_ERROR "LibTorch: ${LibTorch_ROOT} (${LibTorch_HOW}) is version "
          "'${LibTorch_VERSION}', wanted >= ${LibTorch_FIND_VERSION}.\n"
          "  Run launch/setup, or pass -DSHOAL_TORCH_ROOT=FOLDER of a newer one.")
endif()
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_LIB_DIR LibTorch_ROOT
                                  VERSION_VAR LibTorch_VERSION)

_libtorch_target(c10 libc10.so)
_libtorch_target(cpu libtorch_cpu.so LibTorch::c10)
_libtorch_target(c10_cuda libc10_cuda.so LibTorch::c10)
_libtorch_target(cuda libtorch_cuda.so LibTorch::cpu LibTorch::c10_cuda)

# The wheel's own CUDA libraries: libtorch_cpu needs two of them. The loader finds them by
# libtorch_cpu's RPATH; the linker needs to be told.
file(GLOB LibTorch_WHEEL_LIB_DIRS LIST_DIRECTORIES true "${LibTorch_ROOT}/../nvidia/*/lib")
foreach(dir IN LISTS LibTorch_WHEEL_LIB_DIRS)
  set_property(TARGET LibTorch::cpu APPEND PROPERTY
               INTERFACE_LINK_OPTIONS "LINKER:-rpath-link,${dir}")
endforeach()
if(TARGET LibTorch::cuda)
  # Nothing of ours may name a symbol of it, yet loading it is what registers the CUDA operators.
  set_property(TARGET LibTorch::cuda APPEND PROPERTY
               INTERFACE_LINK_OPTIONS "LINKER:--no-as-needed")
endif()
