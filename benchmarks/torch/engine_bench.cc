// Times the allreduce of an inference engine for CPUs, by the method of rivals/method.h. The engine
// is DeepSpeed or, with ENGINE_VLLM, vLLM. engines.py gets the engine's source, which is included
// unchanged, and compiles this file for the comparison only.
#ifdef ENGINE_VLLM
#include "cpu/shm.cpp"
#else
#include "cpu/comm/shm.cpp"
#endif

#include <cstdio>
#include <cstring>
#include <string>

extern "C" {
#include "benchmarks/rivals/page.h"
}

namespace {

at::Tensor tensor;  // a tensor over the timed buffer

#ifdef ENGINE_VLLM

int64_t manager = 0;

void join_engine(const std::string& name) {
  manager = init_shm_manager("/" + name, ranks, rank, 1);
  barrier();
  join_shm_manager(manager, "/" + name);
  barrier();
  shm_unlink(("/" + name + "_" + std::to_string(rank)).c_str());
}

void allreduce() { shm_allreduce(manager, tensor); }

#else

void join_engine(std::string name) {
  char port[] = "0";
  shm_initialize(ranks, rank, name.data(), port);
  barrier();  // the call maps memory that must have its length
  name = std::string(SHM_BUFFER_NAME) + "_" + std::to_string(getuid()) + "_" + name + "_0_";
  shm_unlink((name + std::to_string(rank)).c_str());
}

void allreduce() {
  all_reduce_outer_loop(tensor, static_cast<size_t>(tensor.numel()),
                        static_cast<int>(tensor.nbytes()));
}

#endif

int open_engine(const bench_options* options, int* own, int* all, char* version) {
  *own = bench_environment("BENCH_RANK");
  *all = bench_environment("BENCH_SIZE");
  std::string folder = options->page;  // the folder belongs to this run alone
  folder.resize(folder.rfind('/'));
  join_engine(folder.substr(folder.rfind('/') + 1));
  std::snprintf(version, BENCH_TEXT, "%s", ENGINE_VERSION);
  return 0;
}

int prepare(int op, int type, void*, void* recv, size_t count) {
  constexpr at::ScalarType kTypes[] = {at::kFloat, at::kHalf, at::kBFloat16};
  if (op != BENCH_ALLREDUCE) return 1;
  tensor = torch::from_blob(recv, {static_cast<int64_t>(count)}, kTypes[type]);
  return 0;
}

int run(int, int, void*, void*, size_t, int) {
  allreduce();
  return 0;
}

void close_engine() { barrier(); }

}  // namespace

int main(int argc, char** argv) {
  const bench_library library = {open_engine, nullptr, prepare, run, close_engine};
  return bench_main(argc, argv, &library);
}
