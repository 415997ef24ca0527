# Installs all files. The installed tree can be moved, and programs that were written for HCCL can use it as
# ASCEND_HOME_PATH (ASCEND_DIR):
#   include/hccl, include/acl           the headers
#   <libdir>                            libhccl, plugins, pkg-config and CMake packages
#   lib64                               libhccl again, when <libdir> has another name
#   <libdir>/*.debug                    the symbols of stripped libraries, where debuggers look for them
#   set_env.sh                          the environment of a shell
include(CMakePackageConfigHelpers)
# Packages and wheels choose among components: library, plugins, programs, symbols, and the two that follow.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)
set(ascend COMPONENT ascend)  # names that only programs written for HCCL look for

install(FILES hccl.h hccl_comm.h hccl_framework.h hccl_fusion.h hccl_optim.h hccl_types.h hcom.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/hccl)
# acl/ also has source files: its public headers have acl in their names or are in error_codes.
install(DIRECTORY acl/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/acl
  FILES_MATCHING PATTERN "acl*.h" PATTERN "error_codes/*.h")

install(TARGETS hccl EXPORT hcclTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)

# HCCL consists of several libraries. Here their names are links to one library, so that a program has one runtime
# whichever of them it links.
set(links ${PROJECT_BINARY_DIR}/links)
set(library libhccl.so.${PROJECT_VERSION_MAJOR})
set(aliases libascendcl.so libacl_rt.so libhcomm.so libmsprofiler.so)
file(REMOVE_RECURSE ${links})
file(MAKE_DIRECTORY ${links}/libdir ${links}/lib64)
foreach(alias ${aliases})
  file(CREATE_LINK ${library} ${links}/libdir/${alias} SYMBOLIC)
  install(FILES ${links}/libdir/${alias} DESTINATION ${CMAKE_INSTALL_LIBDIR} ${ascend})
endforeach()
# Links single files, not the folder: lib64 may exist already, with other files.
if(NOT CMAKE_INSTALL_LIBDIR STREQUAL "lib64")
  file(RELATIVE_PATH from_lib64 /lib64 /${CMAKE_INSTALL_LIBDIR}/${library})
  foreach(name libhccl.so ${library} ${aliases})
    file(CREATE_LINK ${from_lib64} ${links}/lib64/${name} SYMBOLIC)
    install(FILES ${links}/lib64/${name} DESTINATION lib64 ${ascend})
  endforeach()
endif()

# Writes the file at installation, because the prefix is known only then. --prefix may give a relative path. The file
# has the prefix in single quotes, so single quotes in the prefix are escaped.
install(CODE "
  get_filename_component(prefix \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
  string(REPLACE \"'\" \"'\\\\''\" prefix \"\${prefix}\")
  set(CMAKE_INSTALL_BINDIR \"${CMAKE_INSTALL_BINDIR}\")
  set(CMAKE_INSTALL_LIBDIR \"${CMAKE_INSTALL_LIBDIR}\")
  configure_file(\"${PROJECT_SOURCE_DIR}/cmake/set_env.sh.in\" \"${PROJECT_BINARY_DIR}/set_env.sh\" @ONLY)" ${ascend})
install(PROGRAMS ${PROJECT_BINARY_DIR}/set_env.sh DESTINATION . ${ascend})

install(EXPORT hcclTargets NAMESPACE hccl:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hccl)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/hcclConfig.cmake.in
  ${PROJECT_BINARY_DIR}/hcclConfig.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hccl)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hcclConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)  # before 1.0 a minor version may change interfaces
install(FILES ${PROJECT_BINARY_DIR}/hcclConfig.cmake ${PROJECT_BINARY_DIR}/hcclConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hccl)

file(RELATIVE_PATH HCCL_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/hccl.pc.in ${PROJECT_BINARY_DIR}/hccl.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/hccl.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(stripped "")
foreach(target hccl hccl_files hccl_optim hccl_jax hccl_pmix hccl_ofi hccl_mpi)
  if(TARGET ${target})
    string(APPEND stripped " \"$<TARGET_FILE:${target}>\"")
  endif()
endforeach()
install(CODE "
  foreach(file${stripped})
    get_filename_component(name \"\${file}\" NAME)
    set(installed \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/\${name}\")
    execute_process(COMMAND ${CMAKE_OBJCOPY} --only-keep-debug --compress-debug-sections \"\${file}\" \"\${installed}.debug\"
      COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND ${CMAKE_OBJCOPY} \"--add-gnu-debuglink=\${installed}.debug\" \"\${installed}\"
      COMMAND_ERROR_IS_FATAL ANY)
  endforeach()" COMPONENT symbols)
