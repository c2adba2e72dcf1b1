# Finds NCCL for the plug-in: the library that libtorch_cuda loads, and the header of that library.
# `toolkit` is the CUDA toolkit's folder. Sets SHOAL_NCCL_LIBRARY, SHOAL_NCCL_INCLUDE,
# SHOAL_NCCL_VERSION, and SHOAL_NCCL_WHY (empty: all there).

# libtorch_cuda looks beside its wheel first, then where the loader looks.
set(folders "")
foreach(dir IN LISTS LibTorch_WHEEL_LIB_DIRS)
  get_filename_component(dir "${dir}/.." ABSOLUTE)
  list(APPEND folders "${dir}")
endforeach()
list(APPEND folders "${toolkit}" "${toolkit}/targets/${CMAKE_SYSTEM_PROCESSOR}-linux" /usr /usr/local)

set(SHOAL_NCCL_WHY "")
set(SHOAL_NCCL_LIBRARY "")
set(SHOAL_NCCL_INCLUDE "")
set(SHOAL_NCCL_VERSION "")
foreach(folder IN LISTS folders)
  find_file(found_library NAMES libnccl.so.2 NO_CACHE NO_DEFAULT_PATH
            PATHS "${folder}/lib64" "${folder}/lib" "${folder}/lib/${CMAKE_LIBRARY_ARCHITECTURE}")
  if(found_library)
    set(SHOAL_NCCL_LIBRARY "${found_library}")
    unset(found_library)
    if(EXISTS "${folder}/include/nccl.h")
      set(SHOAL_NCCL_INCLUDE "${folder}/include")
    endif()
    break()
  endif()
  unset(found_library)
endforeach()

if(NOT SHOAL_NCCL_LIBRARY)
  set(SHOAL_NCCL_WHY "libtorch_cuda needs libnccl.so.2: run launch/setup")
elseif(NOT SHOAL_NCCL_INCLUDE)
  set(SHOAL_NCCL_WHY
      "NCCL's header nccl.h is not beside ${SHOAL_NCCL_LIBRARY}: install the one of its version")
else()
  set(version "")
  foreach(part IN ITEMS MAJOR MINOR PATCH)
    file(STRINGS "${SHOAL_NCCL_INCLUDE}/nccl.h" line REGEX "^#define NCCL_${part} ")
    if(line MATCHES "NCCL_${part} +([0-9]+)")
      list(APPEND version ${CMAKE_MATCH_1})
    endif()
  endforeach()
  list(JOIN version "." SHOAL_NCCL_VERSION)
  # Non-blocking communicators that can be finalized.
  if(SHOAL_NCCL_VERSION VERSION_LESS 2.14)
    set(SHOAL_NCCL_WHY "NCCL ${SHOAL_NCCL_VERSION} in ${SHOAL_NCCL_INCLUDE} is older than 2.14")
  endif()
endif()
