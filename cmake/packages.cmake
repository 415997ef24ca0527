# Debian packages, which scripts/packages.sh makes with CPack:
#   hccl           the library, hccl_perf and hccl-plan
#   hccl-plugins   the plugins for MPI, libfabric and PMIx, so that hccl does not depend on these
#   libhccl-dev    headers, pkg-config and CMake packages
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR "hccl")
set(CPACK_PACKAGE_CONTACT "the maintainers of hccl")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL library programs plugins development)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/lib)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME hccl)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS hccl-plugins)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_LIST_DIR}/triggers)  # runs ldconfig
set(CPACK_DEBIAN_PLUGINS_PACKAGE_NAME hccl-plugins)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libhccl-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Headers, pkg-config and CMake packages of hccl")
foreach(package PLUGINS DEVELOPMENT)
  set(CPACK_DEBIAN_${package}_PACKAGE_DEPENDS "hccl (= ${PROJECT_VERSION})")
endforeach()

include(CPack)
cpack_add_component(library GROUP runtime)
cpack_add_component(programs GROUP runtime)
cpack_add_component(plugins GROUP plugins)
cpack_add_component(development GROUP development)
