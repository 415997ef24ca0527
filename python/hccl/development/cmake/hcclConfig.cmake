# find_package(hccl) finds this file below the prefix that "python -m hccl.config --cmake-prefix" prints. No folder that
# is named after the package holds it, so that a build of the package itself never takes an older one for its library.
get_filename_component(hccl_package ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
file(GLOB hccl_library ${hccl_package}/libhccl.so.*)
if(NOT TARGET hccl::hccl)
  add_library(hccl::hccl SHARED IMPORTED)
  set_target_properties(hccl::hccl PROPERTIES
    IMPORTED_LOCATION ${hccl_library}
    INTERFACE_INCLUDE_DIRECTORIES ${hccl_package}/include)
endif()
