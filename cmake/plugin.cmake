# hccl_plugin(TARGET): the rules of every library that is loaded at run time. The library lies in the folder of
# libhccl.so, exports chosen symbols only, and no target links it.
# hccl_plugin(TARGET plugins): puts TARGET into the component plugins, because it needs a library that a host may lack.
include_guard(GLOBAL)
function(hccl_plugin target)
  hccl_warnings(${target})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL -Wl,--as-needed
    -Wl,-z,nodelete)  # MPI, PMIx and libfabric leave exit handlers and threads behind
  set_target_properties(${target} PROPERTIES
    PREFIX "lib"
    SUFFIX ".so"
    C_VISIBILITY_PRESET hidden
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  set(component library ${ARGN})
  list(GET component -1 component)
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component})
endfunction()
