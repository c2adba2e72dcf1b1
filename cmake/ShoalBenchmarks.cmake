# benchmarks/*_bench.cpp, all in one program, which costs half as much to build as one each. It starts
# the benchmark that it is called by: benchmarks/NAME_bench are links to it. Target `benchmarks`.
file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/benchmarks/*_bench.cpp")
file(GLOB common CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/benchmarks/support/*.cpp")
add_executable(benchmarks ${sources} ${common})
shoal_use_torch(benchmarks)
shoal_compile_quickly(benchmarks)
target_link_libraries(benchmarks PRIVATE shoal_process)
target_compile_definitions(benchmarks PRIVATE
  SHOAL_BENCHMARK_PEERS="${PROJECT_SOURCE_DIR}/benchmarks/peers")
set_target_properties(benchmarks PROPERTIES
  OUTPUT_NAME shoal_bench RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/benchmarks"
  EXCLUDE_FROM_ALL $<NOT:$<BOOL:${SHOAL_BENCHMARKS}>>)
foreach(source IN LISTS sources)
  get_filename_component(name "${source}" NAME_WE)
  add_custom_command(TARGET benchmarks POST_BUILD
    COMMAND ${CMAKE_COMMAND} -E create_symlink shoal_bench "${CMAKE_BINARY_DIR}/benchmarks/${name}"
    VERBATIM)
endforeach()
