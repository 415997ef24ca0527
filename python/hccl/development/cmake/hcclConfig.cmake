# find_package(hccl) finds this file below the prefix that "python -m hccl.config --cmake-prefix" prints. The folder of
# this file is not named like the package, so that a build of the package itself never finds an older package here.
get_filename_component(hccl_package ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
file(GLOB hccl_library ${hccl_package}/libhccl.so.*)
if(NOT TARGET hccl::hccl)
  add_library(hccl::hccl SHARED IMPORTED)
  set_target_properties(hccl::hccl PROPERTIES
    IMPORTED_LOCATION ${hccl_library}
    INTERFACE_INCLUDE_DIRECTORIES ${hccl_package}/include)
endif()
