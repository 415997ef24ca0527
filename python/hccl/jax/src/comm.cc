#include "comm.h"

#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "hccl/hccl.h"
#include "hccl/hccl_framework.h"

namespace hccl::jax {
namespace {

// Never destroyed, because JAX may call these functions while the process exits.
struct State {
  std::mutex joining;
  bool joined = false;
  HcclResult result = HCCL_SUCCESS;
  Comm world;
  std::mutex splitting;  // held in split(), which runs operations of the world
  uint32_t splits = 0;
  std::mutex mutex;
  std::set<Comm*> comms;  // the living communicators of split()
  bool told = false;      // a failure has been printed on stderr
};

State& state() {
  static auto* const all = new State;
  return *all;
}

std::string& text() {
  thread_local std::string last;
  return last;
}

HcclResult join(Comm& world) {
  HcclResult result = HcclCommInitLauncher(&world.handle);
  if (result == HCCL_SUCCESS) result = HcclGetRankId(world.handle, &world.rank);
  if (result == HCCL_SUCCESS) result = HcclGetRankSize(world.handle, &world.size);
  if (result != HCCL_SUCCESS) world.failure = HcclGetLastErrorText();
  return result;
}

struct Choice {
  int32_t color;
  int32_t key;
};

// Returns the world ranks with this color, ordered by key, or nothing if the keys are not 0, 1, 2,
// ...
std::vector<uint32_t> members(const std::vector<Choice>& choices, int color) {
  std::map<int32_t, uint32_t> by_key;
  uint32_t count = 0;
  for (uint32_t rank = 0; rank < choices.size(); ++rank) {
    if (choices[rank].color != color) continue;
    by_key[choices[rank].key] = rank;
    ++count;
  }
  std::vector<uint32_t> ranks;
  for (const auto& [key, rank] : by_key) {
    if (key == static_cast<int32_t>(ranks.size())) ranks.push_back(rank);
  }
  if (ranks.size() != count) ranks.clear();
  return ranks;
}

void make_group(Comm& comm, int color, int key) {
  Comm& all = world();
  comm.failure = all.failure;
  if (!comm.failure.empty()) return;
  const std::lock_guard lock(state().splitting);
  const std::string name = "jax" + std::to_string(state().splits++) + "_" + std::to_string(color);
  std::vector<Choice> choices(all.size);
  Choice mine{color, key};
  HcclResult result =
      HcclAllGather(&mine, choices.data(), 2, HCCL_DATA_TYPE_INT32, all.handle, nullptr);
  if (result == HCCL_SUCCESS) {
    const auto ranks = members(choices, color);
    if (ranks.empty()) {
      comm.failure =
          "JAX began collectives of different devices on the ranks at the same time, "
          "or a process has several CPU devices; hccl supports one for each process";
      return;
    }
    comm.rank = static_cast<uint32_t>(key);
    comm.size = static_cast<uint32_t>(ranks.size());
    result =
        HcclCommCreateGroup(all.handle, comm.size, ranks.data(), name.c_str(), 0, &comm.handle);
  }
  if (result == HCCL_SUCCESS) return;
  comm.failure = HcclGetLastErrorText();
  comm.failure += "; in MPI_Comm_split, which all processes must call for a new group";
}

}  // namespace

Comm& world() {
  State& all = state();
  const std::lock_guard lock(all.joining);
  if (!all.joined) {
    all.result = join(all.world);
    all.joined = true;
  }
  return all.world;
}

Comm* split(int color, int key) {
  auto* const comm = new Comm;
  make_group(*comm, color, key);
  if (!comm->failure.empty()) fail(comm->failure);
  const std::lock_guard lock(state().mutex);
  state().comms.insert(comm);
  return comm;
}

void release(Comm* comm) {
  const std::lock_guard lock(state().mutex);
  if (state().comms.erase(comm) == 0) return;
  if (comm->handle != nullptr) HcclCommDestroy(comm->handle);
  delete comm;
}

void leave() {
  Comm& all = world();
  const std::lock_guard lock(state().mutex);
  for (Comm* comm : state().comms) {
    if (comm->handle != nullptr) HcclCommDestroy(comm->handle);
    comm->handle = nullptr;
    comm->failure = "MPI_Finalize has been called";
  }
  if (all.failure.empty()) HcclCommDestroy(all.handle);
  all.handle = nullptr;
  all.failure = "MPI_Finalize has been called";
}

int fail(const std::string& reason) {
  text() = reason;
  const std::lock_guard lock(state().mutex);
  if (!state().told) std::fprintf(stderr, "hccl.jax: %s\n", reason.c_str());
  state().told = true;
  return HCCL_E_INTERNAL;
}

int check(HcclResult result) {
  if (result != HCCL_SUCCESS) fail(HcclGetLastErrorText());
  return result;
}

const std::string& last_failure() { return text(); }

}  // namespace hccl::jax

HcclResult HcclJaxWorld(HcclComm* comm) {
  *comm = hccl::jax::world().handle;
  return hccl::jax::state().result;
}

void HcclJaxAbort(const char* reason) {
  const auto& world = hccl::jax::world();
  const std::lock_guard lock(hccl::jax::state().mutex);
  for (const auto* comm : hccl::jax::state().comms) {
    if (comm->handle != nullptr) HcclCommAbort(comm->handle, reason);
  }
  if (world.handle != nullptr) HcclCommAbort(world.handle, reason);
}
