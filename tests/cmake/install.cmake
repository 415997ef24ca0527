# An installed tree, as strangers use it: package files, compiler lines of programs for HCCL, the
# examples, and a client in the way of HCCL's own benchmark.
# A sanitized library needs sanitized programs, so this is for plain builds.
if(NOT HCCL_SANITIZE)
  add_test(NAME install_test
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install_test.sh ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}
            ${CMAKE_COMMAND} ${CMAKE_C_COMPILER} ${CMAKE_CXX_COMPILER})
  set_tests_properties(install_test PROPERTIES LABELS "unit" TIMEOUT 300)

  set(tree ${CMAKE_CURRENT_BINARY_DIR}/tree)
  add_test(NAME install_tree
    COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --prefix ${tree} --strip)
  set_tests_properties(install_tree PROPERTIES FIXTURES_SETUP tree LABELS "unit")

  # The examples by their Makefile: all are built and run, and print what their READMEs say.
  add_test(NAME examples_make_test
    COMMAND bash -c "source ${tree}/set_env.sh && make -C ${PROJECT_SOURCE_DIR}/examples \
      BUILD=${CMAKE_CURRENT_BINARY_DIR}/examples CXX=${CMAKE_CXX_COMPILER} -j2 all && \
      make -C ${PROJECT_SOURCE_DIR}/examples BUILD=${CMAKE_CURRENT_BINARY_DIR}/examples run")
  set_tests_properties(examples_make_test PROPERTIES FIXTURES_REQUIRED tree LABELS "unit" TIMEOUT 600)

  find_package(MPI COMPONENTS C)
  if(MPI_C_FOUND)
    list(GET MPI_C_INCLUDE_DIRS 0 mpi_include)
    get_filename_component(mpi_lib "${MPI_mpi_LIBRARY}" DIRECTORY)
    set(client ${CMAKE_CURRENT_BINARY_DIR}/client)
    file(MAKE_DIRECTORY ${client})
    add_test(NAME hccl_client_build
      COMMAND bash -c "source ${tree}/set_env.sh && make -C ${CMAKE_CURRENT_SOURCE_DIR}/hccl_client -B \
        OUT=${client} CXX=${CMAKE_CXX_COMPILER} MPI_INC=${mpi_include} MPI_LIB=${mpi_lib}")
    set_tests_properties(hccl_client_build PROPERTIES
      FIXTURES_REQUIRED tree FIXTURES_SETUP client LABELS "unit" TIMEOUT 300)

    # hccl_client_test(NAME RANKS options...)
    function(hccl_client_test name ranks)
      list(JOIN ARGN " " options)
      string(REPLACE ";" " " options "${ARGN}")
      add_test(NAME hccl_client_${name}_${ranks}_test
        COMMAND bash -c "source ${tree}/set_env.sh && exec mpirun --oversubscribe --allow-run-as-root \
          -np ${ranks} ${client}/hccl_client ${options}")
      set_tests_properties(hccl_client_${name}_${ranks}_test PROPERTIES
        FIXTURES_REQUIRED "tree;client" LABELS "unit" TIMEOUT 300)
    endfunction()
    set(everything -d all -o all -n 1 -w 0)
    set(sizes -b 8 -e 8M -f 32 -n 4 -w 1)
    foreach(ranks 2 4 8)
      hccl_client_test(types ${ranks} ${everything} -b 8 -e 4K -f 512)
      hccl_client_test(zero_copy ${ranks} ${sizes} -z 1)
      hccl_client_test(symmetric ${ranks} ${sizes} -m 1 -r 1)
    endforeach()
    hccl_client_test(types 3 ${everything} -b 1000 -e 1000 -r 2)
    hccl_client_test(large 2 -b 64M -e 64M -n 1 -w 0)
    hccl_client_test(gated 4 ${sizes} -t 1 -g 1 -p 2 -P ${client}/profile)
  endif()
endif()

# The examples as this build made them.
if(HCCL_BUILD_EXAMPLES)
  file(GLOB readmes CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/examples
    ${PROJECT_SOURCE_DIR}/examples/0*/*/README.md)
  foreach(readme ${readmes})
    get_filename_component(example ${readme} DIRECTORY)
    string(REPLACE "/" "." target ${example})
    if(TARGET ${target})
      add_test(NAME example_${target}_test
        COMMAND ${PROJECT_SOURCE_DIR}/examples/run.sh ${PROJECT_BINARY_DIR}/examples ${example})
      set_tests_properties(example_${target}_test PROPERTIES LABELS "unit;examples" TIMEOUT 120)
    endif()
  endforeach()
endif()
