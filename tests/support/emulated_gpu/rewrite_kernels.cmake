cmake_minimum_required(VERSION 3.25)
# Turns CUDA's syntax into calls of emulated_gpu.h. Inputs: SOURCE, OUTPUT.
# Launches are statements of kernels whose names end in _kernel; a __shared__ declaration has one
# name.
file(READ "${SOURCE}" text)
string(REGEX REPLACE
  "([A-Za-z0-9_]+_kernel)((<[^;{}]*>)?[ \n]*)<<<([^;]*)>>>\\(([^;]*)\\);"
  "::emulated_gpu::launch(\"\\1\", {\\4}, [&] { \\1\\2(\\5); });" text "${text}")
string(REGEX REPLACE
  "extern __shared__ ([A-Za-z0-9_]+) ([A-Za-z0-9_]+)\\[\\];"
  "\\1* const \\2 = static_cast<\\1*>(::emulated_gpu::dynamic_shared());" text "${text}")
string(REGEX REPLACE
  "__shared__ ([A-Za-z0-9_]+) ([A-Za-z0-9_]+)((\\[[^]]*\\])*);"
  "auto& \\2 = ::emulated_gpu::shared<\\1\\3>();" text "${text}")
if(text MATCHES "[^\n]*(<<<|>>>|__shared__)[^\n]*")
  message(FATAL_ERROR "${SOURCE}: emulated_gpu cannot rewrite: ${CMAKE_MATCH_0}")
endif()
file(WRITE "${OUTPUT}" "#line 1 \"${SOURCE}\"\n${text}")
