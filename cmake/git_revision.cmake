cmake_minimum_required(VERSION 3.25)
# Writes OUTPUT with the commit of SOURCE, only if it differs from what is there.
set(revision "unknown")
if(GIT)
  execute_process(COMMAND ${GIT} -C "${SOURCE}" describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                  RESULT_VARIABLE status)
  if(status EQUAL 0 AND found)
    set(revision "${found}")
  endif()
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "#define SHOAL_GIT_REVISION \"@revision@\"\n" @ONLY)
