# build_info.cpp: what the program was built from, with what, for `shoal doctor` and env.json.
string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
set(SHOAL_BUILD_FLAGS "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}}")
string(STRIP "${SHOAL_BUILD_FLAGS}" SHOAL_BUILD_FLAGS)
if(SHOAL_SANITIZE)
  string(APPEND SHOAL_BUILD_FLAGS " -fsanitize=address,undefined")
endif()
include(ShoalFindCuda)

# The library's own version; CMake knows only that of the standard.
set(SHOAL_MPI_NAME "MPI ${MPI_C_VERSION}")
set(version "")
foreach(part IN ITEMS MAJOR MINOR RELEASE)
  foreach(dir IN LISTS MPI_C_INCLUDE_DIRS)
    if(EXISTS "${dir}/mpi.h")
      file(STRINGS "${dir}/mpi.h" line REGEX "define OMPI_${part}_VERSION")
      if(line MATCHES "OMPI_${part}_VERSION +([0-9]+)")
        list(APPEND version ${CMAKE_MATCH_1})
        break()
      endif()
    endif()
  endforeach()
endforeach()
if(version)
  list(JOIN version "." version)
  set(SHOAL_MPI_NAME "Open MPI ${version}")
endif()

set(info_dir "${CMAKE_BINARY_DIR}/build_info")
configure_file(cmake/build_info.cpp.in "${info_dir}/build_info.cpp" @ONLY)

# Asked at every build, written only when it changed: then one small file is compiled anew.
find_package(Git QUIET)
add_custom_target(shoal_git_revision
  COMMAND ${CMAKE_COMMAND} -DGIT=${GIT_EXECUTABLE} -DSOURCE=${PROJECT_SOURCE_DIR}
          -DOUTPUT=${info_dir}/git_revision.h -P ${PROJECT_SOURCE_DIR}/cmake/git_revision.cmake
  BYPRODUCTS ${info_dir}/git_revision.h VERBATIM)
add_library(shoal_build_info OBJECT "${info_dir}/build_info.cpp")
add_dependencies(shoal_build_info shoal_git_revision)
target_link_libraries(shoal_build_info PRIVATE shoal_base)
target_include_directories(shoal_build_info PRIVATE "${info_dir}")
