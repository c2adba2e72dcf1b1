# `cmake --install`: the program, its libraries, recipes, launch scripts, manual and completions, and
# for those who link libshoal its headers and a CMake package: find_package(shoal),
# target_link_libraries(... shoal::shoal), or shoal::process for programs. Components: `program`, `development`, `cuda` (the
# plug-in), and `bundle`, which is for packages alone (ShoalPackage.cmake).
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/shoal")
set(share_dir "${CMAKE_INSTALL_DATADIR}/shoal")
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME program)

install(TARGETS shoal_lib EXPORT shoal LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shoal)
install(TARGETS shoal RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET shoal_cuda)
  install(TARGETS shoal_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cuda)
endif()
install(DIRECTORY configs DESTINATION ${share_dir})
install(PROGRAMS launch/run launch/mpirun.sh launch/slurm.sbatch launch/metrics_to_wandb launch/pickle_to_safetensors
        DESTINATION ${share_dir}/launch)
install(FILES launch/common.sh launch/mpirun_common.sh DESTINATION ${share_dir}/launch)
install(DIRECTORY launch/python DESTINATION ${share_dir} PATTERN __pycache__ EXCLUDE)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
# Pages that the program writes hold dygraphs, whose licence goes along.
find_file(SHOAL_DYGRAPHS_LICENCE copyright PATHS /usr/share/doc/libjs-dygraphs NO_DEFAULT_PATH)
mark_as_advanced(SHOAL_DYGRAPHS_LICENCE)
if(SHOAL_DYGRAPHS_LICENCE)
  install(FILES "${SHOAL_DYGRAPHS_LICENCE}" DESTINATION "${CMAKE_INSTALL_DOCDIR}/licences/dygraphs")
endif()

# The manual and the completions are what the program prints of its own command line.
set(words_dir "${CMAKE_BINARY_DIR}/words")
install(CODE "
  foreach(words IN ITEMS man \"completion bash\" \"completion zsh\" \"completion fish\")
    string(REPLACE \" \" \";\" arguments \"\${words}\")
    string(REPLACE \" \" \"_\" file \"\${words}\")
    file(MAKE_DIRECTORY \"${words_dir}\")
    execute_process(COMMAND \"$<TARGET_FILE:shoal>\" \${arguments} OUTPUT_FILE \"${words_dir}/\${file}\"
                    COMMAND_ERROR_IS_FATAL ANY)
  endforeach()")
install(FILES "${words_dir}/man" DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 RENAME shoal.1)
install(FILES "${words_dir}/completion_bash" RENAME shoal
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
# zsh looks in the first folder below /usr/local, Debian's in the second below /usr.
foreach(folder IN ITEMS site-functions vendor-completions)
  install(FILES "${words_dir}/completion_zsh" RENAME _shoal
          DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/${folder})
endforeach()
install(FILES "${words_dir}/completion_fish" RENAME shoal.fish
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)
foreach(folder IN ITEMS runtime parallel moe sparse models launch)
  if(EXISTS "${PROJECT_SOURCE_DIR}/${folder}")
    install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shoal
            FILES_MATCHING PATTERN "*.h" PATTERN "*_cuda.h" EXCLUDE)
  endif()
endforeach()
install(TARGETS shoal_process EXPORT shoal ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT shoal FILE shoal-targets.cmake NAMESPACE shoal:: DESTINATION ${package_dir})
configure_package_config_file(cmake/shoal-config.cmake.in
  "${CMAKE_BINARY_DIR}/package/shoal-config.cmake" INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file("${CMAKE_BINARY_DIR}/package/shoal-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/package/shoal-config.cmake"
              "${CMAKE_BINARY_DIR}/package/shoal-config-version.cmake"
              cmake/FindLibTorch.cmake
        DESTINATION ${package_dir})
