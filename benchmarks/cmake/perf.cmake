# hccl_perf: against the public interface only.
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
add_executable(hccl_perf perf/algorithms.cc perf/bench.cc perf/buffers.cc perf/hccl_perf.cc perf/operation.cc perf/options.cc perf/report.cc)
hccl_warnings(hccl_perf)
target_link_libraries(hccl_perf PRIVATE hccl::hccl CLI11::CLI11 nlohmann_json::nlohmann_json Threads::Threads)
set_target_properties(hccl_perf PROPERTIES INSTALL_RPATH
  "\$ORIGIN/../${CMAKE_INSTALL_LIBDIR};\$ORIGIN/..")  # in a wheel the library lies above
install(TARGETS hccl_perf COMPONENT programs)
