# `cpack --config build/release/CPackConfig.cmake`: a Debian package and an archive that run without
# a compiler and without network, once the Debian packages that they name are there. They hold the
# program, recipes and launch scripts, and LibTorch's CPU libraries in lib/shoal. Neither the CUDA
# plug-in, which needs several GB of CUDA libraries, nor headers: for those `cmake --install`.
option(SHOAL_BUNDLE_TORCH "Put LibTorch's CPU libraries into packages" ON)

set(bundle_dir "${CMAKE_INSTALL_LIBDIR}/shoal")
if(SHOAL_BUNDLE_TORCH)
  # libtorch_cpu.so links some libraries of CUDA, GPU or not; its RPATH ends with its own folder.
  set(SHOAL_BUNDLED "")
  foreach(name IN ITEMS libtorch_cpu.so libc10.so libgomp.so.1 libcudart.so.13 libcupti.so.13)
    find_file(found ${name} PATHS "${LibTorch_LIB_DIR}" ${LibTorch_WHEEL_LIB_DIRS}
              NO_DEFAULT_PATH NO_CACHE)
    if(found)
      list(APPEND SHOAL_BUNDLED "${found}")
    elseif(name MATCHES "^lib(torch_cpu|c10)[.]so$")
      message(FATAL_ERROR "${name} is not in ${LibTorch_LIB_DIR}, so that packages could not run; "
                          "-DSHOAL_BUNDLE_TORCH=OFF leaves LibTorch out of packages")
    endif()
    unset(found)
  endforeach()
  install(PROGRAMS ${SHOAL_BUNDLED} DESTINATION ${bundle_dir} COMPONENT bundle EXCLUDE_FROM_ALL)
  # The licences that the wheels carry: LibTorch's with those of all it contains, and NVIDIA's.
  file(GLOB licences LIST_DIRECTORIES true "${LibTorch_ROOT}/../*.dist-info")
  foreach(folder IN LISTS licences)
    if(folder MATCHES "/((torch|nvidia_cuda_runtime|nvidia_cuda_cupti)-[^/]*)[.]dist-info$" AND
       EXISTS "${folder}/licenses")
      install(DIRECTORY "${folder}/licenses/" COMPONENT bundle EXCLUDE_FROM_ALL
              DESTINATION "${CMAKE_INSTALL_DOCDIR}/licences/${CMAKE_MATCH_1}")
    endif()
  endforeach()
  configure_file(cmake/finish_package.cmake.in "${CMAKE_BINARY_DIR}/package/finish_package.cmake" @ONLY)
  set(CPACK_PRE_BUILD_SCRIPTS "${CMAKE_BINARY_DIR}/package/finish_package.cmake")
endif()

set(CPACK_GENERATOR "DEB;TGZ")
set(CPACK_PACKAGE_NAME shoal)
set(CPACK_PACKAGE_CONTACT "The authors of Shoal")
set(CPACK_PACKAGE_VENDOR "Shoal")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_PACKAGE_FILE_NAME
    "shoal-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_COMPONENTS_ALL program)
if(SHOAL_BUNDLE_TORCH)
  list(APPEND CPACK_COMPONENTS_ALL bundle)
endif()
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_PROJECT_CONFIG_FILE "${PROJECT_SOURCE_DIR}/cmake/package_options.cmake")
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_THREADS 0)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# Which packages have the libraries that we link is dpkg-shlibdeps's to say; mpirun is no library,
# and oneDNN is opened at run time where it is.
find_program(SHOAL_SHLIBDEPS dpkg-shlibdeps)
mark_as_advanced(SHOAL_SHLIBDEPS)
if(SHOAL_SHLIBDEPS)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${LibTorch_LIB_DIR}" ${LibTorch_WHEEL_LIB_DIRS})
endif()
set(CPACK_DEBIAN_PACKAGE_DEPENDS openmpi-bin)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS libdnnl2)
include(CPack)
