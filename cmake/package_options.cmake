# Read by cpack for each kind of package: archives have a folder of their own, Debian packages none.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
endif()
