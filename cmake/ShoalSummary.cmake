# What was found where, and what to do about what was not.
if(SHOAL_CUDA_VERSION)
  set(cuda "plug-in libshoal_cuda.so: nvcc ${SHOAL_CUDA_VERSION} (${CMAKE_CUDA_COMPILER}), ${CMAKE_CUDA_ARCHITECTURES}, NCCL ${SHOAL_NCCL_VERSION} (${SHOAL_NCCL_LIBRARY})")
else()
  set(cuda "not built: ${SHOAL_CUDA_WHY}")
endif()
function(_shoal_tool path without out)
  if(path)
    set(${out} "${path}" PARENT_SCOPE)
  else()
    set(${out} "not found: ${without}" PARENT_SCOPE)
  endif()
endfunction()
_shoal_tool("${SHOAL_CCACHE}" "every build compiles everything (apt-get install ccache)" ccache)
_shoal_tool("${SHOAL_MOLD}" "the default linker is slower (apt-get install mold)" mold)
find_program(SHOAL_CLANG_FORMAT clang-format)
mark_as_advanced(SHOAL_CLANG_FORMAT)
_shoal_tool("${SHOAL_CLANG_FORMAT}" "lint fails (apt-get install clang-format)" format)
if(NOT SHOAL_TESTS)
  set(SHOAL_TEST_HOSTS "none: SHOAL_TESTS is off")
  set(SHOAL_TEST_PEERS "none: SHOAL_TESTS is off")
  set(SHOAL_TEST_BROWSER "none: SHOAL_TESTS is off")
endif()
message(STATUS "Shoal ${PROJECT_VERSION}
   build           ${CMAKE_BUILD_TYPE} in ${CMAKE_BINARY_DIR}, sanitizers ${SHOAL_SANITIZE}
   compiler        ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} (${CMAKE_CXX_COMPILER})
   LibTorch        ${LibTorch_VERSION} in ${LibTorch_ROOT} (${LibTorch_HOW})
   MPI             ${SHOAL_MPI_NAME} (${MPIEXEC_EXECUTABLE})
   CUDA plug-in    ${cuda}
   yaml-cpp        ${yaml-cpp_VERSION}, spdlog ${spdlog_VERSION}, fmt ${fmt_VERSION}, OpenSSL ${OPENSSL_VERSION}
   ccache          ${ccache}
   mold            ${mold}
   clang-format    ${format}
   hosts in tests  ${SHOAL_TEST_HOSTS}
   peers in tests  ${SHOAL_TEST_PEERS}
   browser         ${SHOAL_TEST_BROWSER}")
