# tests_gpu_emulated: tests/**/*_gpu_test.cpp with the plug-in's kernels and host code, compiled for a
# GPU that is emulated on the CPU. How: tests/support/emulated_gpu/emulated_gpu.h.
set(emulated "${PROJECT_SOURCE_DIR}/tests/support/emulated_gpu")
set(rewritten "${CMAKE_BINARY_DIR}/emulated_gpu")
set(gpu_tests "")
set(host_code "")
set(kernels "")
foreach(folder IN ITEMS runtime parallel moe sparse models launch)
  file(GLOB_RECURSE found_cpp CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*_cuda.cpp")
  file(GLOB_RECURSE found_cu CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*.cu"
       "${PROJECT_SOURCE_DIR}/${folder}/*.cuh")
  list(APPEND host_code ${found_cpp})
  list(APPEND kernels ${found_cu})
  if(TARGET tests_gpu_${folder})
    list(APPEND gpu_tests $<TARGET_OBJECTS:tests_gpu_${folder}>)
  endif()
endforeach()
# NCCL moves data between real devices only, and nvcc compiles nothing here.
list(FILTER host_code EXCLUDE REGEX "/(nccl|gpu_kernels)_[^/]*$")

set(outputs "")
foreach(kernel IN LISTS kernels)
  file(RELATIVE_PATH name "${PROJECT_SOURCE_DIR}" "${kernel}")
  string(REGEX REPLACE "\\.cu$" ".cpp" name "${name}")
  set(output "${rewritten}/${name}")
  add_custom_command(OUTPUT "${output}" DEPENDS "${kernel}" "${emulated}/rewrite_kernels.cmake"
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${kernel} -DOUTPUT=${output}
            -P "${emulated}/rewrite_kernels.cmake" VERBATIM)
  list(APPEND outputs "${output}")
endforeach()

add_library(emulated_kernels OBJECT ${outputs} "${emulated}/emulated_gpu.cpp")
target_link_libraries(emulated_kernels PRIVATE shoal_base GTest::gtest)
target_include_directories(emulated_kernels BEFORE PRIVATE "${rewritten}" "${emulated}/include")
# Kernels read vectors of what was written as numbers, and leave values unset that nobody uses.
target_compile_options(emulated_kernels PRIVATE
  -fno-strict-aliasing -Wno-unknown-pragmas -Wno-maybe-uninitialized)
# A GPU ends kernels that load or store where their type is not aligned: SIGILL here.
if(NOT SHOAL_SANITIZE)
  target_compile_options(emulated_kernels PRIVATE
    -fsanitize=alignment -fsanitize-undefined-trap-on-error)
endif()

add_library(emulated_device OBJECT "${emulated}/accesses.cpp" "${emulated}/counts.cpp"
            "${emulated}/device.cpp" "${emulated}/memory.cpp" "${emulated}/operators.cpp"
            "${emulated}/streams.cpp")
add_library(emulated_checks OBJECT "${emulated}/check.cpp" "${emulated}/check_launches.cpp"
            "${emulated}/check_ranks.cpp" "${emulated}/check_staging.cpp"
            "${emulated}/check_streams.cpp")
# Alone, for GCC's -Wsubobject-linkage: a type that cuSPARSE names holds one of the file's own.
set_source_files_properties("${emulated}/cusparse_cpu.cpp" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
add_executable(tests_gpu_emulated ${gpu_tests} ${host_code} "${emulated}/cusparse_cpu.cpp"
               $<TARGET_OBJECTS:emulated_device> $<TARGET_OBJECTS:emulated_checks>
               $<TARGET_OBJECTS:emulated_kernels> $<TARGET_OBJECTS:tests_support>)
foreach(target IN ITEMS emulated_device emulated_checks tests_gpu_emulated)
  shoal_use_torch(${target})
  shoal_compile_quickly(${target})
  target_include_directories(${target} BEFORE PRIVATE "${emulated}/include")
endforeach()
target_link_libraries(emulated_device PRIVATE GTest::gtest)
target_link_libraries(emulated_checks PRIVATE GTest::gtest)
target_link_libraries(tests_gpu_emulated PRIVATE shoal_process GTest::gmock GTest::gtest_main)
# In a folder of its own, beside a probe of its own: tests look for that where they are.
add_library(emulated_gpu_probe MODULE "${emulated}/probe.cpp")
target_link_libraries(emulated_gpu_probe PRIVATE shoal_base)
set_target_properties(emulated_gpu_probe PROPERTIES
  PREFIX lib OUTPUT_NAME tests_gpu_probe LIBRARY_OUTPUT_DIRECTORY "${rewritten}")
set_target_properties(tests_gpu_emulated PROPERTIES
  ENABLE_EXPORTS ON RUNTIME_OUTPUT_DIRECTORY "${rewritten}")
add_dependencies(tests_gpu_emulated emulated_gpu_probe)
# There are no graphs: work is done when it is queued.
shoal_register(tests_gpu_emulated MoeLayerGpu.OnOneRankIsACudaGraph)
