# benchmarks/*_bench.cpp: one program each, all built by the target `benchmarks`.
file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/benchmarks/*_bench.cpp")
file(GLOB common CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/benchmarks/support/*.cpp")
add_custom_target(benchmarks)
add_library(bench_support STATIC EXCLUDE_FROM_ALL ${common})
target_include_directories(bench_support PRIVATE "${PROJECT_SOURCE_DIR}")
target_compile_features(bench_support PRIVATE cxx_std_20)
target_compile_definitions(bench_support PRIVATE
  SHOAL_BENCHMARK_PEERS="${PROJECT_SOURCE_DIR}/benchmarks/peers")
foreach(source IN LISTS sources)
  get_filename_component(name "${source}" NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL "${source}")
  shoal_use_torch(${name})
  target_link_libraries(${name} PRIVATE shoal_lib bench_support)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/benchmarks" EXCLUDE_FROM_ALL $<NOT:$<BOOL:${SHOAL_BENCHMARKS}>>)
  add_dependencies(benchmarks ${name})
endforeach()
