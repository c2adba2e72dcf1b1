# `cmake --install`: the program, its libraries, recipes and launch scripts, and for those who link
# libshoal its headers and a CMake package: find_package(shoal), target_link_libraries(... shoal::shoal).
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/shoal")
set(share_dir "${CMAKE_INSTALL_DATADIR}/shoal")

install(TARGETS shoal_lib EXPORT shoal LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shoal)
install(TARGETS shoal RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET shoal_cuda)
  install(TARGETS shoal_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY configs DESTINATION ${share_dir})
install(PROGRAMS launch/run launch/mpirun.sh launch/slurm.sbatch launch/metrics_to_wandb
        DESTINATION ${share_dir}/launch)
install(FILES launch/common.sh launch/mpirun_common.sh DESTINATION ${share_dir}/launch)

foreach(folder IN ITEMS runtime parallel moe sparse models launch)
  if(EXISTS "${PROJECT_SOURCE_DIR}/${folder}")
    install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shoal
            FILES_MATCHING PATTERN "*.h" PATTERN "*_cuda.h" EXCLUDE)
  endif()
endforeach()
install(EXPORT shoal FILE shoal-targets.cmake NAMESPACE shoal:: DESTINATION ${package_dir})
configure_package_config_file(cmake/shoal-config.cmake.in
  "${CMAKE_BINARY_DIR}/package/shoal-config.cmake" INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file("${CMAKE_BINARY_DIR}/package/shoal-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/package/shoal-config.cmake"
              "${CMAKE_BINARY_DIR}/package/shoal-config-version.cmake"
              cmake/FindLibTorch.cmake
        DESTINATION ${package_dir})
