// Works like the program with which HCCL's users measure: ranks from mpirun, root info through MPI,
// acl memory, one stream, events for the time, and every result compared on the host.
#define OMPI_SKIP_MPICXX
#include <acl/acl.h>
#include <acl/acl_prof.h>
#include <hccl/hccl.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "check.h"
#include "data.h"
#include "memory.h"
#include "operators.h"
#include "options.h"

namespace {

class Client {
 public:
  Client(const Options& options, int rank, int ranks) : options_(options) {
    setting_ = Setting();
    setting_.rank = static_cast<uint32_t>(rank);
    setting_.ranks = static_cast<uint32_t>(ranks);
    setting_.root = static_cast<uint32_t>(options.root);
  }

  bool start();
  /// Returns false if a call failed. Wrong results are only counted.
  bool run_all();
  bool finish();
  uint64_t wrong_results() const { return wrong_results_; }

 private:
  bool join();
  bool choose_memory();
  bool run_sizes(const Operator& op);
  bool run(const Operator& op);
  bool measure(const Operator& op, const TestCase& test_case, void* send, void* recv, double* us);
  bool fill(const Operator& op, const TestCase& test_case, void* send, void* recv);
  bool compare(const Operator& op, const TestCase& test_case, const void* recv);
  bool upload(void* device, uint64_t bytes);
  void report(const Operator& op, double us, bool right) const;

  const Options& options_;
  Setting setting_;
  int32_t device_ = 0;
  HcclComm comm_ = nullptr;
  aclrtStream stream_ = nullptr;
  aclrtStream gate_stream_ = nullptr;
  aclrtEvent gate_ = nullptr;
  aclrtEvent begin_ = nullptr;
  aclrtEvent end_ = nullptr;
  aclprofConfig* profile_ = nullptr;
  std::unique_ptr<Memory> memory_;
  void* host_ = nullptr;  // as large as the larger buffer
  uint64_t wrong_results_ = 0;
};

// ---- start and end ----

bool Client::start() {
  uint32_t devices = 0;
  CLIENT_CHECK(aclrtGetDeviceCount(&devices));  // before aclInit
  if (options_.devices > devices || devices == 0) {
    std::fprintf(stderr, "there are %u devices\n", devices);
    return false;
  }
  if (aclrtGetSocName() == nullptr) return false;
  if (options_.devices > 0) devices = static_cast<uint32_t>(options_.devices);
  device_ = static_cast<int32_t>(setting_.rank % devices);

  CLIENT_CHECK(aclInit(nullptr));
  CLIENT_CHECK(aclrtSetDevice(device_));
  if (!options_.profile.empty()) {
    CLIENT_CHECK(aclprofInit(options_.profile.c_str(), options_.profile.size()));
    uint32_t profiled[] = {static_cast<uint32_t>(device_)};
    profile_ = aclprofCreateConfig(profiled, 1, ACL_AICORE_NONE, nullptr,
                                   ACL_PROF_ACL_API | ACL_PROF_TASK_TIME | ACL_PROF_HCCL_TRACE);
    if (profile_ == nullptr) return false;
    CLIENT_CHECK(aclprofStart(profile_));
  }
  CLIENT_CHECK(aclrtCreateEvent(&begin_));
  CLIENT_CHECK(aclrtCreateEvent(&end_));
  CLIENT_CHECK(aclrtCreateStream(&stream_));
  CLIENT_CHECK(aclrtSetStreamFailureMode(stream_, 1));
  if (options_.gate) {
    CLIENT_CHECK(aclrtCreateStream(&gate_stream_));
    CLIENT_CHECK(aclrtCreateEventWithFlag(&gate_, ACL_EVENT_SYNC));
  }
  return choose_memory() && join() && memory_->begin(comm_);
}

bool Client::choose_memory() {
  if (options_.symmetric) {
    memory_.reset(new SymmetricMemory);
  } else if (options_.zero_copy) {
    std::unique_ptr<ZeroCopyMemory> memory(new ZeroCopyMemory);
    // Room for two buffers, with some extra for every rank: parts may be unequal or rounded up.
    if (!memory->reserve(2 * (options_.end + 64 * setting_.ranks) + (4 << 20))) return false;
    memory_ = std::move(memory);
  } else {
    memory_.reset(new PlainMemory);
  }
  return true;
}

bool Client::join() {
  setenv("HCCL_OP_RETRY_ENABLE", "L0:0, L1:0, L2:0", 0);
  HcclRootInfo root_info;
  std::memset(&root_info, 0, sizeof root_info);
  if (setting_.rank == 0) CLIENT_CHECK(HcclGetRootInfo(&root_info));
  MPI_Bcast(&root_info, HCCL_ROOT_INFO_BYTES, MPI_CHAR, 0, MPI_COMM_WORLD);
  if (!options_.config && !options_.symmetric) {
    CLIENT_CHECK(HcclCommInitRootInfo(setting_.ranks, &root_info, setting_.rank, &comm_));
    return true;
  }
  if (HcclGetCommConfigCapability() <= HCCL_COMM_CONFIG_COMM_NAME) return false;
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  config.hcclSymWinMaxMemSizePerRank =
      std::max<uint64_t>(HCCL_DEFAULT_SYMMETRIC_MEMORY_STRIDE, 2 * options_.end >> 30);
  if (options_.config) {
    config.hcclBufferSize = 64;
    config.hcclDeterministic = 1;
    std::strncpy(config.hcclCommName, "client", sizeof config.hcclCommName - 1);
  }
  CLIENT_CHECK(
      HcclCommInitRootInfoConfig(setting_.ranks, &root_info, setting_.rank, &config, &comm_));
  char name[COMM_NAME_MAX_LENGTH] = "";
  CLIENT_CHECK(HcclGetCommName(comm_, name));
  return !options_.config || std::strcmp(name, "client") == 0;
}

bool Client::finish() {
  if (!memory_->end()) return false;
  CLIENT_CHECK(HcclCommDestroy(comm_));
  if (!memory_->release()) return false;
  if (options_.gate) {
    CLIENT_CHECK(aclrtDestroyStream(gate_stream_));
    CLIENT_CHECK(aclrtDestroyEvent(gate_));
  }
  CLIENT_CHECK(aclrtDestroyStream(stream_));
  CLIENT_CHECK(aclrtDestroyEvent(begin_));
  CLIENT_CHECK(aclrtDestroyEvent(end_));
  if (profile_ != nullptr) {
    CLIENT_CHECK(aclprofStop(profile_));
    CLIENT_CHECK(aclprofDestroyConfig(profile_));
    CLIENT_CHECK(aclprofFinalize());
  }
  CLIENT_CHECK(aclrtResetDevice(device_));
  CLIENT_CHECK(aclFinalize());
  return true;
}

// ---- the loops ----

bool Client::run_all() {
  if (setting_.rank == 0) {
    std::printf("# %u ranks, %s, %s memory%s%s\n# %-15s %-8s %-5s %12s %12s %10s %s\n",
                setting_.ranks, aclrtGetSocName(),
                options_.symmetric ? "symmetric" : (options_.zero_copy ? "zero-copy" : "plain"),
                options_.gate ? ", gated" : "", options_.config ? ", configured" : "", "operator",
                "type", "op", "bytes", "average us", "GB/s", "result");
  }
  for (const Operator& op : all_operators()) {
    const std::vector<std::string>& wanted = options_.operators;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), op.name) == wanted.end()) {
      continue;
    }
    for (HcclDataType type : options_.types) {
      setting_.type = type;
      if (op.reduces && !can_be_reduced(type)) continue;
      for (HcclReduceOp reduction : options_.reductions) {
        setting_.reduction = reduction;
        if (!run_sizes(op)) return false;
        if (!op.reduces) break;
      }
    }
  }
  return true;
}

bool Client::run_sizes(const Operator& op) {
  const uint64_t size = size_of(setting_.type);
  for (uint64_t bytes = options_.begin; bytes <= options_.end;
       bytes = options_.step > 0 ? bytes + options_.step : bytes * options_.factor) {
    setting_.count = std::max<uint64_t>(1, bytes / size);
    if (!run(op)) return false;
  }
  return true;
}

bool Client::run(const Operator& op) {
  TestCase test_case;
  op.plan(setting_, &test_case);
  const uint64_t size = size_of(setting_.type);
  void* send = nullptr;
  void* recv = nullptr;
  if (!memory_->take(test_case.send_count * size, test_case.recv_count * size, &send, &recv)) {
    return false;
  }
  CLIENT_CHECK(
      aclrtMallocHost(&host_, std::max(test_case.send_count, test_case.recv_count) * size));

  double us = 0;
  if (!fill(op, test_case, send, recv) || !measure(op, test_case, send, recv, &us)) return false;
  bool right = true;
  if (options_.check) {
    // Runs once more into a buffer that holds other data.
    if (!fill(op, test_case, send, recv)) return false;
    CLIENT_CHECK(op.call({setting_, test_case, send, recv, comm_, stream_}));
    CLIENT_CHECK(aclrtSynchronizeStream(stream_));
    right = compare(op, test_case, recv);
    int all = right ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    right = all == 1;
  }
  if (setting_.rank == 0) report(op, us, right);
  if (!right) ++wrong_results_;

  CLIENT_CHECK(aclrtFreeHost(host_));
  return memory_->give_back();
}

bool Client::measure(const Operator& op, const TestCase& test_case, void* send, void* recv,
                     double* us) {
  if (options_.gate) {
    CLIENT_CHECK(aclrtStreamWaitEvent(stream_, gate_));
    CLIENT_CHECK(aclrtResetEvent(gate_, stream_));
  }
  for (uint64_t i = 0; i < options_.warmup; ++i) {
    CLIENT_CHECK(op.call({setting_, test_case, send, recv, comm_, stream_}));
  }
  CLIENT_CHECK(aclrtRecordEvent(begin_, stream_));
  for (uint64_t i = 0; i < options_.iterations; ++i) {
    CLIENT_CHECK(op.call({setting_, test_case, send, recv, comm_, stream_}));
  }
  CLIENT_CHECK(aclrtRecordEvent(end_, stream_));
  if (options_.gate) {
    usleep(1000);  // everything is queued, and nothing may have begun
    float early = 0;
    if (aclrtEventElapsedTime(&early, begin_, end_) == ACL_SUCCESS) {
      std::fprintf(stderr, "%s ran before its event came\n", op.name);
      return false;
    }
    CLIENT_CHECK(aclrtRecordEvent(gate_, gate_stream_));
  }
  CLIENT_CHECK(aclrtSynchronizeStream(stream_));
  float ms = 0;
  CLIENT_CHECK(aclrtEventElapsedTime(&ms, begin_, end_));
  *us = static_cast<double>(ms) * 1000 / static_cast<double>(options_.iterations);
  return true;
}

// ---- data ----

bool Client::upload(void* device, uint64_t bytes) {
  CLIENT_CHECK(aclrtMemcpy(device, bytes, host_, bytes, ACL_MEMCPY_HOST_TO_DEVICE));
  return true;
}

bool Client::fill(const Operator& op, const TestCase& test_case, void* send, void* recv) {
  const uint64_t size = size_of(setting_.type);
  const Data mine = op.reduces ? Data::to_reduce(setting_.type, setting_.reduction, setting_.rank)
                               : Data::moved(setting_.type, setting_.rank);
  if (test_case.send_count > 0) {
    mine.write(host_, 0, test_case.send_count);
    if (!upload(send, test_case.send_count * size)) return false;
  }
  if (test_case.in_place && setting_.rank == setting_.root) {
    mine.write(host_, 0, test_case.recv_count);
  } else {
    std::memset(host_, 0xA5, test_case.recv_count * size);
  }
  return upload(recv, test_case.recv_count * size);
}

bool Client::compare(const Operator& op, const TestCase& test_case, const void* recv) {
  const uint64_t size = size_of(setting_.type);
  const uint64_t bytes = test_case.recv_count * size;
  CLIENT_CHECK(aclrtMemcpy(host_, bytes, recv, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
  for (const Part& part : test_case.expected) {
    const Data data = part.from == Part::kReduced
                          ? Data::reduced(setting_.type, setting_.reduction, setting_.ranks)
                          : Data::moved(setting_.type, part.from);
    uint64_t wrong = 0;
    const char* at = static_cast<const char*>(host_) + part.at * size;
    if (!data.matches(at, part.offset, part.count, &wrong)) {
      std::fprintf(stderr, "rank %u: %s of %s %s: element %llu is wrong\n", setting_.rank, op.name,
                   name_of(setting_.type), op.reduces ? name_of(setting_.reduction) : "",
                   static_cast<unsigned long long>(part.at + wrong));
      return false;
    }
  }
  return true;
}

void Client::report(const Operator& op, double us, bool right) const {
  const uint64_t bytes = setting_.count * size_of(setting_.type);
  std::printf("  %-15s %-8s %-5s %12llu %12.1f %10.3f %s\n", op.name, name_of(setting_.type),
              op.reduces ? name_of(setting_.reduction) : "-",
              static_cast<unsigned long long>(bytes), us,
              us > 0 ? static_cast<double>(bytes) / us / 1000 : 0.0,
              options_.check ? (right ? "success" : "failed") : "NULL");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);

  Options options;
  if (!parse_options(argc, argv, &options)) {
    if (aclFinalize() == ACL_SUCCESS) MPI_Finalize();  // allowed without an earlier aclInit
    return 2;
  }
  if (options.root >= static_cast<uint32_t>(ranks)) options.root = 0;

  Client client(options, rank, ranks);
  if (!client.start() || !client.run_all() || !client.finish()) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
  return client.wrong_results() == 0 ? 0 : 1;
}
