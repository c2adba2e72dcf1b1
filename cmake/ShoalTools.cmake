# Build type, compiler cache, linker and Ninja pools.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_EXTENSIONS OFF)

# No -march: one binary serves a mixed cluster; fast paths are chosen at run time.
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g -D_GLIBCXX_ASSERTIONS")

# Two links at once would need the memory of two; mold takes a second each.
set_property(GLOBAL PROPERTY JOB_POOLS link=1)
set(CMAKE_JOB_POOL_LINK link)

find_program(SHOAL_MOLD mold)
if(SHOAL_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
# RPATH, not RUNPATH: only RPATH is searched for the libraries that libtorch_cuda itself needs.
add_link_options(-Wl,--disable-new-dtags)
# By it ranks compare what they have loaded. Most compilers ask for it anyway.
add_link_options(-Wl,--build-id=sha1)

find_program(SHOAL_CCACHE ccache)
if(SHOAL_CCACHE)
  # The sloppiness is what makes precompiled headers cacheable; base dir and nohashdir let
  # checkouts in different folders share hits, but for files compiled as one, which hold paths.
  set(settings CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env ${settings}
      ${PROJECT_SOURCE_DIR}/cmake/ccache_fresh_header.sh ${SHOAL_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env ${settings} ${SHOAL_CCACHE})
endif()
